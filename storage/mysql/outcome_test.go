package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/proxy"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mysql"
)

// through opens a store whose connections go through a proxy.
func through(t *testing.T, d *database) (storage.Store, *proxy.Proxy) {
	t.Helper()
	p, by := proxy.Before(t, d.url)
	return open(t, mysql.Config{URL: by}), p
}

func isUnknown(err error) bool { return errors.Is(err, storage.ErrOutcomeUnknown) }

// struck waits until a cut has been made: the client may hear of it first.
func struck(t *testing.T, cut *proxy.Cutter) {
	t.Helper()
	select {
	case <-cut.Done():
	case <-time.After(soon):
		require.FailNow(t, "the connection was not cut")
	}
}

func isCommit(st proxy.Statement) bool { return strings.HasPrefix(st.SQL, "COMMIT") }

// D8: an answer to COMMIT that never came is an unknown outcome, whether the commit happened
// or not; nothing is run a second time, and the repeat tells.
func TestD8LostAnswerToCommitIsUnknown(t *testing.T) {
	d := newDatabase(t, false)
	for _, c := range []struct {
		name string
		at   proxy.Moment
		then storage.ItemStatus
	}{
		{"committed", proxy.BeforeAnswer, storage.ItemAlreadySettled},
		{"not committed", proxy.BeforeRequest, storage.ItemApplied},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, p := through(t, d)
			q := queue(t, d.store, c.name)
			enqueue(t, d.store, q.ID, 1)
			claimed := claim(t, d.store, q.ID, 1, time.Hour)
			cut := p.CutAt(c.at, isCommit)
			_, err := s.Settle(t.Context(), storage.SettleParams{Items: completions(claimed)})
			require.ErrorIs(t, err, storage.ErrOutcomeUnknown)
			struck(t, cut)
			require.Eventually(t, func() bool { // The server may find out a moment later.
				r, err := s.Settle(t.Context(), storage.SettleParams{Items: completions(claimed)})
				return err == nil && r.Items[0].Status == c.then
			}, soon, pollEvery)

			cut = p.CutAt(c.at, isCommit)
			_, err = s.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID, IdempotencyKey: "key"}}})
			require.ErrorIs(t, err, storage.ErrOutcomeUnknown)
			struck(t, cut)
			want := map[proxy.Moment]int{proxy.BeforeAnswer: 1, proxy.BeforeRequest: 0}[c.at]
			require.Equal(t, strconv.Itoa(want), d.lines(t, "SELECT COUNT(*) FROM message WHERE queue_id = ?", q.ID)[0], "once at most")
		})
	}
}

// D8, D2: a connection that breaks before the commit proves that nothing happened, and the
// transaction is run again on another one.
func TestD8BrokenBeforeTheCommitIsRunAgain(t *testing.T) {
	d := newDatabase(t, false)
	s, p := through(t, d)
	q := queue(t, s, "broken")
	for _, at := range []proxy.Moment{proxy.BeforeRequest, proxy.BeforeAnswer} {
		for _, text := range []string{"START TRANSACTION", "INSERT INTO message"} {
			before := d.lines(t, "SELECT COUNT(*) FROM message")[0]
			cut := p.CutAt(at, func(st proxy.Statement) bool { return strings.Contains(st.SQL, text) })
			// With a key it is a transaction of several statements.
			enqueue(t, s, q.ID, 1, func(_ int, m *storage.NewMessage) { m.IdempotencyKey = fmt.Sprint(text, at) })
			struck(t, cut)
			n, err := strconv.Atoi(before)
			require.NoError(t, err)
			require.Equal(t, strconv.Itoa(n+1), d.lines(t, "SELECT COUNT(*) FROM message")[0], "%s: not twice", text)
		}
	}
}

// D3, D8: a database that cannot be reached has certainly changed nothing; a read that
// lost its connection is read again.
func TestD3Unreachable(t *testing.T) {
	d := newDatabase(t, false)
	s, p := through(t, d)
	q := queue(t, s, "away")
	cut := p.CutAt(proxy.BeforeAnswer, func(st proxy.Statement) bool { return strings.Contains(st.SQL, "FROM queue") })
	_, err := s.GetQueueByID(t.Context(), q.ID)
	require.NoError(t, err, "the read ran again on another connection")
	struck(t, cut)
	p.Refuse(true)
	p.Cut()
	_, err = s.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID}}})
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.ErrorIs(t, s.Ready(t.Context()), storage.ErrUnavailable)
	p.Refuse(false)
	require.Eventually(t, func() bool { return s.Ready(t.Context()) == nil }, soon, pollEvery)
	story(t, s, "back")
}

// D3: a route that is lost without a word ends with the ctx of the caller.
func TestD3ABlackHoleEndsWithTheCaller(t *testing.T) {
	d := newDatabase(t, false)
	s, p := through(t, d)
	q := queue(t, s, "hole")
	p.BlackHole(true)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := s.Enqueue(ctx, storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID}}})
	require.ErrorIs(t, err, storage.ErrUnavailable, "no commit was sent, so nothing is unknown")
	p.Cut()
	p.BlackHole(false)
	require.Eventually(t, func() bool { return s.Ready(t.Context()) == nil }, soon, pollEvery)
	require.Equal(t, "0", d.lines(t, "SELECT COUNT(*) FROM message")[0])
}

// D8: a caller that leaves during the COMMIT still hears of it where the answer comes soon.
func TestD8ACallerThatLeavesDuringTheCommit(t *testing.T) {
	d := newDatabase(t, false)
	s, p := through(t, d)
	q := queue(t, s, "leaving")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// The caller leaves while the COMMIT is on its way.
	p.CutAt(proxy.BeforeRequest, func(st proxy.Statement) bool {
		if isCommit(st) {
			cancel()
		}
		return false
	})
	_, err := s.Enqueue(ctx, storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID, IdempotencyKey: "key"}}})
	p.Disarm()
	require.NoError(t, err)
	require.Error(t, ctx.Err(), "the caller has left, else this test proves nothing")
	require.Equal(t, "1", d.lines(t, "SELECT COUNT(*) FROM message")[0])
}

// A caller that leaves while its statement waits gets an answer soon, and nothing of the
// call happens later.
func TestALeavingCallerLeavesNothing(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "leaving")
	items := enqueue(t, d.store, q.ID, 1)
	claimed := claim(t, d.store, q.ID, 1, time.Hour)
	release := d.hold(t, items[0].Ref, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	r, err := d.store.Settle(ctx, storage.SettleParams{Items: completions(claimed)})
	if err == nil {
		require.Equal(t, storage.ItemUnknown, r.Items[0].Status)
	} else {
		require.ErrorIs(t, err, storage.ErrUnavailable)
	}
	release()
	require.Eventually(t, func() bool { // The statement that was left may hold the row a moment longer.
		r, err := d.store.Settle(t.Context(), storage.SettleParams{Items: completions(claimed)})
		require.False(t, isUnknown(err))
		return err == nil && r.Items[0].Status == storage.ItemApplied
	}, soon, pollEvery)
}

// failing makes every insert of a message fail with a number, as long as the counter, which
// no rollback turns back, has not passed n.
func (d *database) failing(t *testing.T, number, n int) {
	t.Helper()
	d.exec(t, "CREATE TABLE IF NOT EXISTS broken_tries (n INT NOT NULL) ENGINE=MyISAM")
	d.exec(t, "DELETE FROM broken_tries")
	d.exec(t, "INSERT INTO broken_tries VALUES (0)")
	d.exec(t, "DROP TRIGGER IF EXISTS broken")
	d.exec(t, fmt.Sprintf(`CREATE TRIGGER broken BEFORE INSERT ON message FOR EACH ROW BEGIN
		UPDATE broken_tries SET n = n + 1;
		IF (SELECT n FROM broken_tries) <= %d THEN
			SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = %d, MESSAGE_TEXT = 'on purpose';
		END IF;
		END`, n, number))
}

func (d *database) tries(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(d.lines(t, "SELECT n FROM broken_tries")[0])
	require.NoError(t, err)
	return n
}

// D2, D8: what is run again, and what each failure is told as.
func TestD2D8Failures(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "failures")
	one := func(key string) error {
		m := storage.NewMessage{QueueID: q.ID, IdempotencyKey: key}
		_, err := d.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{m}})
		return err
	}
	for _, key := range []string{"", "keyed"} {
		for _, number := range []int{1213, 1412, 3101} {
			d.failing(t, number, 2)
			if key != "" {
				key += strconv.Itoa(number)
			}
			require.NoError(t, one(key), "D2: %d twice, then it passes", number)
			require.Equal(t, 3, d.tries(t))
			d.failing(t, number, 1000)
			if key != "" {
				key += "again"
			}
			err := one(key)
			require.ErrorIs(t, err, storage.ErrUnavailable, number)
			require.NotErrorIs(t, err, storage.ErrLocked)
			require.LessOrEqual(t, d.tries(t), 20, "few")
		}
		for _, number := range []int{1290, 1836, 1792, 1021, 1114} {
			d.failing(t, number, 1000)
			require.ErrorIs(t, one(key), storage.ErrUnavailable, number)
			require.Equal(t, 1, d.tries(t), "%d", number)
		}
		for _, number := range []int{1317, 1969, 3024} {
			d.failing(t, number, 1000)
			// Without a key the statement is its own transaction, and may have been interrupted
			// when it was through.
			want := storage.ErrOutcomeUnknown
			if key != "" {
				want = storage.ErrUnavailable
			}
			require.ErrorIs(t, one(key), want, number)
			require.Equal(t, 1, d.tries(t), "%d", number)
		}
		d.failing(t, 1205, 1000)
		require.ErrorIs(t, one(key), storage.ErrLocked)
		for _, number := range []int{1146, 1054} {
			d.failing(t, number, 1000)
			require.ErrorIs(t, one(key), storage.ErrSchema, number)
		}
		d.failing(t, 1690, 1000)
		err := one(key)
		require.Error(t, err)
		require.NotErrorIs(t, err, storage.ErrUnavailable, "a defect is no outage")
		require.NotErrorIs(t, err, storage.ErrOutcomeUnknown)
	}
}

// D3: a server that takes no writes any more may still answer on its connections, after a
// failover. They are left, since the next ones may lead to the server that does.
func TestD3ConnectionsToAReadOnlyServerAreLeft(t *testing.T) {
	d := newDatabase(t, false)
	s, p := through(t, d)
	q := queue(t, s, "failover")
	for _, key := range []string{"", "key"} {
		m := storage.NewMessage{QueueID: q.ID, IdempotencyKey: key}
		put := func() error {
			_, err := s.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{m}})
			return err
		}
		d.failing(t, 1836, 3)
		before := p.Accepted()
		for range 3 {
			require.ErrorIs(t, put(), storage.ErrUnavailable)
		}
		require.NoError(t, put())
		require.Equal(t, 3, p.Accepted()-before, "each failure costs a connection")
		require.NoError(t, s.Ready(t.Context()))
		require.Equal(t, 3, p.Accepted()-before, "and nothing else does")
	}
}

// Sessions that somebody kills are told as an outage or an unknown outcome, never as a
// defect, and the store goes on by itself.
func TestD3D8KilledSessions(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "killed")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 4)
	accepted := make(chan int, 4)
	for range 4 {
		go func() {
			n := 0
			for ctx.Err() == nil {
				_, err := d.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: q.ID}}})
				switch {
				case err == nil:
					n++
				case !errors.Is(err, storage.ErrUnavailable) && !isUnknown(err):
					ended <- err
					accepted <- n
					return
				}
			}
			ended <- nil
			accepted <- n
		}()
	}
	for range 20 {
		d.sever(t)
	}
	cancel()
	sum := 0
	for range 4 {
		require.NoError(t, <-ended)
		sum += <-accepted
	}
	have, err := strconv.Atoi(d.lines(t, "SELECT COUNT(*) FROM message")[0])
	require.NoError(t, err)
	require.GreaterOrEqual(t, have, sum, "E10: what was acknowledged is there")
	require.Eventually(t, func() bool { return d.store.Ready(t.Context()) == nil }, soon, pollEvery)
}

// The wait for a lock is bounded, and the call says that it was one.
func TestALockThatIsNotHadInTimeIsTold(t *testing.T) {
	d := newDatabase(t, false)
	q := queue(t, d.store, "locked")
	end := d.holdKey(t, q.ID, "key")
	defer end(false)
	m := storage.NewMessage{QueueID: q.ID, IdempotencyKey: "key"}
	_, err := d.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{m}})
	require.ErrorIs(t, err, storage.ErrLocked)
}
