package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// C9, C12, C13: a claim that the shorter statement is not made for is none the worse for its
// having been tried.
func TestC9WhatTheShorterClaimLeavesAlone(t *testing.T) {
	d := newDatabase(t, false)
	s := d.store
	// Eight stand in the queue, of which the shorter statement has just leased one.
	begin := func(t *testing.T) storage.Queue {
		t.Helper()
		q := queue(t, s, t.Name()[len(t.Name())-5:])
		enqueue(t, s, q.ID, 8, func(_ int, m *storage.NewMessage) { m.WireBytes = 1000 })
		require.Len(t, claim(t, s, q.ID, 1, time.Minute), 1)
		return q
	}
	sized := func(t *testing.T, q storage.Queue, n int, bytes int64) (int, bool) {
		t.Helper()
		out, err := s.Claim(t.Context(), storage.ClaimParams{
			QueueID: q.ID, Calls: []storage.ClaimCall{{Max: n, Lease: time.Minute}}, MaxWireBytes: bytes,
		})
		require.NoError(t, err)
		return len(out.Calls[0].Messages), out.More
	}
	t.Run("due", func(t *testing.T) {
		q := begin(t)
		ref := enqueue(t, s, q.ID, 1, func(_ int, m *storage.NewMessage) { m.Priority, m.Delay = 9, time.Hour })[0].Ref
		require.NotEqual(t, ref, claim(t, s, q.ID, 1, time.Minute)[0].Message.Ref)
		d.exec(t, "UPDATE queuebox.message SET ready_time = now() - interval '1 minute' WHERE place = 1")
		got := claim(t, s, q.ID, 2, time.Minute)
		require.Len(t, got, 2)
		require.Equal(t, ref, got[0].Message.Ref)
	})
	t.Run("bytes", func(t *testing.T) {
		q := begin(t)
		for range 2 {
			n, more := sized(t, q, 10, 2500)
			require.Equal(t, 2, n)
			require.True(t, more)
		}
		n, _ := sized(t, q, 1, 10)
		require.Equal(t, 1, n, "the first one goes, whatever its size")
	})
	t.Run("pause", func(t *testing.T) {
		q := begin(t)
		_, err := s.SetPaused(t.Context(), q.Name, true)
		require.NoError(t, err)
		require.Empty(t, claim(t, s, q.ID, 2, time.Minute))
		_, err = s.SetPaused(t.Context(), q.Name, false)
		require.NoError(t, err)
		require.Len(t, claim(t, s, q.ID, 2, time.Minute), 2)
		require.Len(t, claim(t, s, q.ID, 2, time.Minute), 2)
	})
	t.Run("limit", func(t *testing.T) {
		q := begin(t)
		limited := settings()
		limited.MaxInFlight = 3
		_, err := s.UpdateQueue(t.Context(), q.Name, limited, q.Version)
		require.NoError(t, err)
		require.Len(t, claim(t, s, q.ID, 8, time.Minute), 2, "one is leased")
	})
}

// C19, C1: of rows that somebody else has locked, none is returned, and no other one is left out.
func TestC19TheShorterClaimPassesHeldRows(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "held")
	refs := enqueue(t, d.store, q.ID, 10)
	tx, err := d.connect(t).Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), "SELECT FROM queuebox.message WHERE position = ANY ($1) FOR UPDATE",
		[]int64{refs[0].Ref.Position, refs[4].Ref.Position})
	require.NoError(t, err)
	var got []int64
	for _, c := range claim(t, d.store, q.ID, 5, time.Minute) {
		got = append(got, c.Message.Ref.Position)
	}
	var want []int64
	for _, i := range []int{1, 2, 3, 5, 6} {
		want = append(want, refs[i].Ref.Position)
	}
	require.Equal(t, want, got)
	require.Equal(t, []string{"5"}, d.lines(t, "SELECT count(*)::text FROM queuebox.message WHERE state = 1"))
}
