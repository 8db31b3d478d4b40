package mssql

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mssql/internal/faketds"
)

// queueRow is a queue as queue_columns has it.
func queueRow(name string, paused bool) faketds.Answer {
	return rows([]string{
		"queue_id", "name", "version", "create_time", "paused", "default_lease_us", "min_lease_us", "max_lease_us",
		"max_attempts", "retry_min_us", "retry_max_us", "retry_multiplier", "retry_jitter", "max_in_flight",
		"max_claims_per_second", "ordering_mode", "completed_retention_us", "dead_retention_us", "max_messages",
	}, []any{
		int32(7), []byte(name), int64(1), time.Unix(0, 0), paused, int64(1e6), int64(1e6), int64(1e6),
		int32(3), int64(1e6), int64(1e6), 2.0, 0.5, int32(0), 0.0, int32(1), int64(1e6), int64(1e6), int64(0),
	})
}

// queues answers the statements of a change of a queue.
func queues(r faketds.Request) faketds.Answer {
	switch {
	case strings.Contains(r.Text, "@@ROWCOUNT AS changed"):
		return rows([]string{"changed"}, []any{int32(1)})
	case strings.Contains(r.Text, "FROM queuebox.queue AS q"):
		return queueRow("a ", false)
	}
	return faketds.Answer{}
}

// once gives an answer the first n times that a request matches.
func once(n int32, match func(r faketds.Request) bool, a faketds.Answer) func(r faketds.Request) faketds.Answer {
	var seen atomic.Int32
	return func(r faketds.Request) faketds.Answer {
		if match(r) && seen.Add(1) <= n {
			return a
		}
		return queues(r)
	}
}

func isPause(r faketds.Request) bool  { return strings.Contains(r.Text, "SET version = version + 1") }
func isCommit(r faketds.Request) bool { return r.Kind == faketds.Commit }

// count tells how many requests are of a kind.
func count(s *faketds.Server, kind faketds.Kind) (n int) {
	for _, k := range kinds(s.Requests()) {
		if k == kind {
			n++
		}
	}
	return n
}

func TestStore_AChangeOnTheWire(t *testing.T) {
	store, s := open(t, queues)
	q, err := store.SetPaused(t.Context(), "a ", true)
	require.NoError(t, err)
	require.Equal(t, "a ", q.Name)
	require.EqualValues(t, 7, q.ID)
	sent := s.Requests()
	require.Equal(t, faketds.Begin, sent[0].Kind)
	require.Equal(t, faketds.Commit, sent[len(sent)-1].Kind)
	for _, r := range sent[1 : len(sent)-1] {
		require.Equal(t, procedure, r.Procedure)
		require.Equal(t, sent[1].Transaction, r.Transaction)
	}
	named := sent[1]
	require.Equal(t, "@name varbinary(255)", named.Declared)
	require.Equal(t, []faketds.Param{{Name: "name", Type: "varbinary(2)", Value: []byte("a ")}}, named.Params)
	pause := sent[index(sent, "SET version = version + 1")]
	require.Equal(t, "@paused bit, @queue_id int", pause.Declared)
}

// TestD2: the victim of a deadlock is run again, as a transaction of its own, a few times.
func TestD2_ADeadlockIsRunAgain(t *testing.T) {
	victim := failing(errDeadlock, "Transaction (Process ID 51) was deadlocked on lock resources with another process.")
	store, s := open(t, once(2, isPause, victim))
	_, err := store.SetPaused(t.Context(), "a ", true)
	require.NoError(t, err)
	require.Equal(t, 3, count(s, faketds.Begin))
	require.Equal(t, 1, count(s, faketds.Commit))
	require.Equal(t, 1, s.Conns())
	seen := map[uint64]bool{}
	for _, r := range s.Requests() {
		if isPause(r) {
			seen[r.Transaction] = true
		}
	}
	require.Len(t, seen, 3, "each in a transaction of its own")

	store, s = open(t, once(1000, isPause, victim))
	_, err = store.SetPaused(t.Context(), "a ", true)
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.NotErrorIs(t, err, storage.ErrLocked)
	require.Equal(t, 5, count(s, faketds.Begin))
	require.Zero(t, count(s, faketds.Commit))
}

func TestStore_WhatErrorsBecome(t *testing.T) {
	for _, c := range []struct {
		name  string
		match func(r faketds.Request) bool
		a     faketds.Answer
		n     int32
		want  error
		not   error
	}{
		{"a lock not had", isPause, failing(errLockTimeout, "Lock request time out period exceeded."), 1000, storage.ErrLocked, storage.ErrOutcomeUnknown},
		{"a table that is missing", isPause, failing(errNoTable, "Invalid object name."), 1000, storage.ErrSchema, storage.ErrUnavailable},
		{"a database that reads alone", isPause, failing(errReadOnly, `Failed to update database "q" because the database is read-only.`), 1000, storage.ErrUnavailable, storage.ErrLocked},
		{"a log that is full", isPause, failing(errLogFull, "The transaction log for database 'q' is full."), 1000, storage.ErrUnavailable, storage.ErrOutcomeUnknown},
		{"a connection that breaks", isPause, faketds.Answer{Drop: true}, 1000, storage.ErrUnavailable, storage.ErrOutcomeUnknown},
		{"a session that is ended", isPause, faketds.Answer{Error: faketds.Error{Number: errKilledSession, Class: 21, Message: "killed", Fatal: true}}, 1000, storage.ErrUnavailable, storage.ErrOutcomeUnknown},
		{"a commit that breaks", isCommit, faketds.Answer{Drop: true}, 1, storage.ErrOutcomeUnknown, storage.ErrUnavailable},
		{"a commit with an error of the service", isCommit, faketds.Answer{Error: faketds.Error{Number: errServiceError, Message: "error"}}, 1, storage.ErrOutcomeUnknown, nil},
		{"a begin that breaks", func(r faketds.Request) bool { return r.Kind == faketds.Begin }, faketds.Answer{Drop: true}, 1000, storage.ErrUnavailable, storage.ErrOutcomeUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			store, _ := open(t, once(c.n, c.match, c.a))
			_, err := store.SetPaused(t.Context(), "a ", true)
			require.ErrorIs(t, err, c.want)
			if c.not != nil {
				require.NotErrorIs(t, err, c.not)
			}
			_, err = store.Now(t.Context())
			require.NotErrorIs(t, err, storage.ErrUnavailable, "the pool serves on")
		})
	}
}

// A connection that broke before the commit left nothing, so the transaction is run once more,
// on another one.
func TestStore_ABrokenConnectionIsReplaced(t *testing.T) {
	store, s := open(t, once(1, isPause, faketds.Answer{Drop: true}))
	_, err := store.SetPaused(t.Context(), "a ", true)
	require.NoError(t, err)
	require.Equal(t, 2, s.Conns())
	require.Equal(t, 1, count(s, faketds.Commit))
}

// A commit that may have happened is never run again by the store.
func TestD8_AnUnknownCommitIsNotRunAgain(t *testing.T) {
	store, s := open(t, once(1000, isCommit, faketds.Answer{Drop: true}))
	_, err := store.SetPaused(t.Context(), "a ", true)
	require.ErrorIs(t, err, storage.ErrOutcomeUnknown)
	require.Equal(t, 1, count(s, faketds.Commit))
}

// An error in the middle of rows is one.
func TestStore_AnErrorAfterRows(t *testing.T) {
	store, _ := open(t, func(r faketds.Request) faketds.Answer {
		if r.Kind != faketds.RPC {
			return faketds.Answer{}
		}
		a := queueRow("a", false)
		a.Error = faketds.Error{Number: errDeadlock, Message: "deadlock"}
		return a
	})
	_, err := store.GetQueue(t.Context(), "a")
	require.ErrorIs(t, err, storage.ErrUnavailable)
}

// A caller that leaves gets his answer, and the statement is cancelled.
func TestStore_ACallerThatLeaves(t *testing.T) {
	running, hold := make(chan struct{}, 1), make(chan struct{})
	store, s := open(t, func(r faketds.Request) faketds.Answer {
		if isPause(r) {
			running <- struct{}{}
			return faketds.Answer{Hold: hold, RolledBack: true}
		}
		return queues(r)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-running
		cancel()
	}()
	soon(t, func() {
		_, err := store.SetPaused(ctx, "a ", true)
		require.ErrorIs(t, err, storage.ErrUnavailable)
		require.NotErrorIs(t, err, storage.ErrOutcomeUnknown)
	})
	require.Equal(t, 1, s.Attentions())
	require.Zero(t, count(s, faketds.Commit))
}

// Connections that were closed while they were idle, all of them as after a failover, are
// replaced and nobody hears of it. D3.
func TestD3_ClosedWhileIdle(t *testing.T) {
	store, s := open(t, queues)
	const calls = 5
	for range 3 {
		var many sync.WaitGroup
		for range calls {
			many.Go(func() {
				_, err := store.SetPaused(t.Context(), "a ", true)
				assert.NoError(t, err)
			})
		}
		many.Wait()
		s.Cut()
		s.Forget()
		for range calls {
			_, err := store.SetPaused(t.Context(), "a ", true)
			require.NoError(t, err)
		}
		require.Equal(t, calls, count(s, faketds.Begin), "none was tried in vain")
	}
}
