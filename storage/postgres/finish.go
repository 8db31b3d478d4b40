package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

// mark is a row of marked.
type mark struct {
	ownRow

	ref storage.Ref
}

// Finish implements storage.Own: one look, then transactions of two round trips, the first
// of which takes marks and the second of which settles what they name.
func (s *Store) Finish(ctx context.Context, p storage.FinishParams) (storage.FinishResult, error) {
	marks, out, err := s.marked(ctx, int64(max(p.Limit, 1)))
	if err != nil {
		s.markedBound.forget()
		return out, err
	}
	out.More = len(marks) >= max(p.Limit, 1)
	for len(marks) > 0 {
		n := min(len(marks), ownRows)
		done, err := s.finishOnce(ctx, marks[:n], false, &out)
		if hasCode(err, codeLockNotAvailable) {
			// Somebody has an ordering key: the others go on without it.
			done, err = s.finishOnce(ctx, marks[:n], true, &out)
		}
		if err != nil {
			return out, err
		}
		if done < n {
			// Somebody else is at the others, or has their rows locked: no reason to hurry.
			out.More = false
		}
		marks = marks[n:]
	}
	return out, nil
}

// marked looks for marks.
func (s *Store) marked(ctx context.Context, limit int64) (marks []mark, out storage.FinishResult, err error) {
	var bound string
	err = s.read(ctx, "finish: look", step{
		sql: s.sql.own.marked, args: []any{s.markedBound.from(), limit},
		scan: each(func() { marks = marks[:0] }, func(r pgx.Rows) error {
			var (
				xid      *string
				seq      *int64
				queueID  *int32
				position *int64
			)
			if err := r.Scan(&out.Now, &bound, &xid, &seq, &queueID, &position); err != nil {
				return err
			}
			if xid != nil {
				marks = append(marks, mark{
					ownRow: ownRow{xid: *xid, seq: *seq}, ref: storage.Ref{QueueID: *queueID, Position: *position},
				})
			}
			return nil
		}),
	})
	if err == nil {
		s.markedBound.set(bound)
	}
	out.Now = out.Now.UTC()
	return marks, out, err
}

// finishOnce finishes what it can have of some marks, and tells of how many. free says that it
// waits for no ordering key, and leaves the messages of those that somebody has.
func (s *Store) finishOnce(ctx context.Context, marks []mark, free bool, out *storage.FinishResult) (done int, err error) {
	var (
		xids, seqs = namesOf(marks, func(m mark) ownRow { return m.ownRow })
		taken      []mark
		finished   []storage.FinishedMark
		ready      []storage.QueueReady
		heads      []int32
		now        time.Time
	)
	first := step{sql: s.sql.own.markedTake, args: []any{xids, seqs}, scan: each(
		func() { taken = taken[:0] },
		func(r pgx.Rows) error {
			var m mark
			if err := r.Scan(&m.xid, &m.seq, &m.ref.QueueID, &m.ref.Position); err != nil {
				return err
			}
			taken = append(taken, m)
			return nil
		},
	)}
	err = s.transact(ctx, "finish", []step{first}, func() ([]step, bool) {
		done = 0
		if len(taken) == 0 {
			return nil, false
		}
		xids, seqs := namesOf(taken, func(m mark) ownRow { return m.ownRow })
		refs := make([]storage.Ref, 0, len(taken))
		for _, m := range taken {
			refs = append(refs, m.ref)
		}
		ids, positions := splitRefs(refs)
		finish := step{sql: s.sql.own.finish, args: []any{xids, seqs, ids, positions}, scan: each(
			func() { finished, ready = finished[:0], ready[:0] },
			func(r pgx.Rows) error {
				var (
					cleared  int64
					queueID  *int32
					position *int64
					outcome  *int16
					at       *time.Time
				)
				if err := r.Scan(&now, &cleared, &queueID, &position, &outcome, &at); err != nil {
					return err
				}
				done = int(cleared)
				if queueID == nil {
					return nil
				}
				finished = append(finished, storage.FinishedMark{
					Ref: storage.Ref{QueueID: *queueID, Position: *position}, Outcome: storage.Outcome(*outcome),
				})
				if at != nil {
					ready = append(ready, storage.QueueReady{QueueID: *queueID, ReadyTime: at.UTC()})
				}
				return nil
			},
		)}
		heads = nil
		if ordered := slices.DeleteFunc(refs, func(r storage.Ref) bool { return !keyed(r) }); len(ordered) > 0 {
			if free {
				return s.withFreeKeys(ordered, &heads, finish), true
			}
			return s.withKeys(ordered, ownKeyWait, &heads, finish), true
		}
		return []step{finish}, true
	})
	if err != nil {
		return 0, err
	}
	if !now.IsZero() {
		out.Now = now.UTC()
	}
	out.Finished = append(out.Finished, finished...)
	for _, r := range ready {
		out.Ready = earliest(out.Ready, r)
	}
	for _, id := range heads {
		out.Ready = earliest(out.Ready, storage.QueueReady{QueueID: id, ReadyTime: out.Now})
	}
	return done, nil
}

// earliest keeps the earliest ready time of each queue.
func earliest(all []storage.QueueReady, r storage.QueueReady) []storage.QueueReady {
	for i := range all {
		if all[i].QueueID == r.QueueID {
			if r.ReadyTime.Before(all[i].ReadyTime) {
				all[i].ReadyTime = r.ReadyTime
			}
			return all
		}
	}
	return append(all, r)
}
