package rowlock

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qOwnMarked         statement = "own_marked"
	qOwnMarkedTake     statement = "own_marked_take"
	qOwnMarkedDelete   statement = "own_marked_delete"
	qOwnFinishLock     statement = "own_finish_lock"
	qOwnFinishThere    statement = "own_finish_there"
	qOwnFinishHistory  statement = "own_finish_history"
	qOwnFinishComplete statement = "own_finish_complete"
	qOwnFinishDead     statement = "own_finish_dead"
	qOwnFinishReturn   statement = "own_finish_return"
)

// mark is a row of marked.
type mark struct {
	seq     int64
	queueID int32
	id      int64
	key     sql.NullInt64
}

func (m mark) ref() storage.Ref {
	return storage.Ref{QueueID: m.queueID, Position: positionOf(m.id, m.key.Valid)}
}

// Finish implements storage.Own: one look, then transactions that take marks and settle what
// they name, with the same end as Settle has.
func (s *Store) Finish(ctx context.Context, p storage.FinishParams) (storage.FinishResult, error) {
	var (
		out   storage.FinishResult
		marks []mark
	)
	limit := max(p.Limit, 1)
	s.moveBound(ctx, "finish", s.markedBound, qOwnMarkedFirst)
	from := s.markedBound.start()
	err := s.read(ctx, "finish: look", func(c *session) error {
		marks = nil
		err := c.each(ctx, qOwnMarked, args(a("from", from), a("look", limit)), func(r *sql.Rows) error {
			var m mark
			err := r.Scan(&m.seq, &m.queueID, &m.id, &m.key)
			marks = append(marks, m)
			return err
		})
		if err == nil {
			out.Now, err = c.now(ctx)
		}
		return err
	})
	if err != nil {
		return out, err
	}
	if len(marks) > 0 {
		s.markedBound.saw(marks[0].seq, marks[len(marks)-1].seq)
	}
	out.More = len(marks) >= limit
	for some := range slices.Chunk(marks, ownRows) {
		done, err := s.finishSome(ctx, some, &out)
		if err != nil {
			out.More = false
			return out, err
		}
		if done < len(some) {
			// Somebody else is at the others, or has their rows or keys locked: no reason to hurry.
			out.More = false
		}
	}
	return out, nil
}

// finishSome finishes what it can have of some marks, and tells of how many. It waits for no
// ordering key while it holds others: those that somebody has are tried again a few times.
func (s *Store) finishSome(ctx context.Context, marks []mark, out *storage.FinishResult) (int, error) {
	done, busy, err := s.finishOnce(ctx, marks, out)
	for n := 1; n < keyTries && err == nil && len(busy) > 0; n++ {
		pause := time.NewTimer(keyPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return done, nil
		}
		var more int
		more, busy, err = s.finishOnce(ctx, busy, out)
		done += more
	}
	return done, err
}

// marked is a message whose row the transaction has locked, with what its mark says.
type marked struct {
	mark

	head    bool
	state   storage.State
	outcome storage.Outcome
	settled time.Time
	delay   time.Duration
}

// finishOnce finishes what it can have of some marks, in one transaction, and tells of how many,
// and which it left since somebody has their ordering keys.
func (s *Store) finishOnce(ctx context.Context, marks []mark, out *storage.FinishResult) (done int, busy []mark, err error) {
	var res storage.FinishResult
	err = s.write(ctx, "finish", func(c *session) (verdict, error) {
		res, done, busy = storage.FinishResult{}, 0, nil
		taken, err := c.takeMarks(ctx, marks)
		if err != nil || len(taken) == 0 {
			return rollback, err
		}
		var ids []int64
		for _, m := range taken {
			if m.key.Valid && !slices.Contains(ids, m.key.Int64) {
				ids = append(ids, m.key.Int64)
			}
		}
		keys, err := c.lockKeyIDs(ctx, ids, skipTaken)
		if err != nil {
			return rollback, err
		}
		var cleared []int64
		if cleared, busy, err = c.finish(ctx, taken, keys, &res); err != nil || len(cleared) == 0 {
			return rollback, err
		}
		done = len(cleared)
		if err := c.exactly(ctx, qOwnMarkedDelete, len(cleared), c.ids(cleared)); err != nil {
			return rollback, err
		}
		heads, _, err := c.promote(ctx, keys.ids)
		for _, id := range heads {
			res.Ready = addReady(res.Ready, storage.QueueReady{QueueID: id, ReadyTime: res.Now})
		}
		return commit, err
	})
	if err != nil {
		return 0, nil, err
	}
	out.Finished = append(out.Finished, res.Finished...)
	for _, r := range res.Ready {
		out.Ready = addReady(out.Ready, r)
	}
	if res.Now.After(out.Now) {
		out.Now = res.Now
	}
	return done, busy, nil
}

// takeMarks takes marks that no other server is at.
func (c *session) takeMarks(ctx context.Context, marks []mark) ([]mark, error) {
	seqs := make([]int64, len(marks))
	for i, m := range marks {
		seqs[i] = m.seq
	}
	got, err := c.idsOf(ctx, qOwnMarkedTake, c.ids(seqs))
	return slices.DeleteFunc(slices.Clone(marks), func(m mark) bool { return !got[m.seq] }), err
}

// finish settles the messages that marks name, as the marks say, and gives the marks that may
// go: those whose message it had, and those whose message is not there. The mark of a message
// that somebody else has locked stays for the next time; busy are those that wait for a key.
func (c *session) finish(
	ctx context.Context, marks []mark, keys lockedKeys, res *storage.FinishResult,
) (cleared []int64, busy []mark, err error) {
	had, err := c.lockMarked(ctx, marks)
	if err != nil {
		return nil, nil, err
	}
	there, err := c.liveAmong(ctx, marks)
	if err != nil {
		return nil, nil, err
	}
	if res.Now, err = c.now(ctx); err != nil {
		return nil, nil, err
	}
	var (
		completed, dead, back, told, ending []int64
		heads                               []died
		seen                                = make(map[int64]bool, len(marks))
	)
	for _, k := range marks {
		m, ok := had[k.id]
		switch {
		case ok && !keys.has(m.key):
			busy = append(busy, k)
			continue
		case !ok && there[k.id]:
			continue
		}
		cleared = append(cleared, k.seq)
		if !ok || seen[k.id] || m.state != storage.StateSettling {
			continue
		}
		seen[k.id] = true
		switch m.outcome {
		case storage.OutcomeCompleted:
			completed, ending = append(completed, m.id), append(ending, m.id)
		case storage.OutcomeRetried:
			back, told = append(back, m.id), append(told, m.id)
			ready := m.settled.Add(m.delay)
			if ready.Before(res.Now) {
				ready = res.Now
			}
			res.Ready = addReady(res.Ready, storage.QueueReady{QueueID: m.queueID, ReadyTime: ready})
		default:
			dead, told, ending = append(dead, m.id), append(told, m.id), append(ending, m.id)
			if m.outcome == storage.OutcomeDead && m.key.Valid && m.head {
				heads = append(heads, died{keyID: m.key.Int64, ref: m.ref()})
			}
		}
		res.Finished = append(res.Finished, storage.FinishedMark{Ref: m.ref(), Outcome: m.outcome})
	}
	for _, step := range []struct {
		q  statement
		on []int64
	}{{qOwnFinishHistory, told}, {qOwnFinishComplete, completed}, {qOwnFinishDead, dead}, {qMessageDelete, ending}} {
		if len(step.on) == 0 {
			continue
		}
		if err := c.exactly(ctx, step.q, len(step.on), c.ids(step.on)); err != nil {
			return nil, nil, err
		}
	}
	if len(back) > 0 {
		now := a("now", c.s.engine.Values.Time(res.Now))
		if err := c.exactly(ctx, qOwnFinishReturn, len(back), c.ids(back), now); err != nil {
			return nil, nil, err
		}
	}
	return cleared, busy, c.block(ctx, heads)
}

// lockMarked locks those of the messages that nobody else has locked.
func (c *session) lockMarked(ctx context.Context, marks []mark) (map[int64]marked, error) {
	rows := make([][]any, len(marks))
	for i, m := range marks {
		rows[i] = []any{m.id, m.queueID}
	}
	had := make(map[int64]marked, len(marks))
	err := c.each(ctx, qOwnFinishLock, args(c.list(rows)), func(rows *sql.Rows) error {
		var (
			m       marked
			outcome sql.NullInt16
			settled sql.NullTime
			delay   sql.NullInt64
		)
		err := rows.Scan(&m.id, &m.key, &m.head, &m.state, &outcome, &settled, &delay)
		m.outcome, m.settled, m.delay = storage.Outcome(outcome.Int16), utc(settled), microseconds(delay.Int64)
		had[m.id] = m
		return err
	})
	for _, k := range marks {
		if m, ok := had[k.id]; ok {
			m.queueID = k.queueID
			had[k.id] = m
		}
	}
	return had, err
}

// liveAmong tells which of the messages are live, whoever has locked them.
func (c *session) liveAmong(ctx context.Context, marks []mark) (map[int64]bool, error) {
	ids := make([]int64, len(marks))
	for i, m := range marks {
		ids[i] = m.id
	}
	return c.idsOf(ctx, qOwnFinishThere, c.ids(ids))
}
