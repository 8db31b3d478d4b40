package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// The kinds of messages that Purge goes through one after the other: finished ones first, so
// that a message which ends meanwhile is not counted twice. Next holds the kind in its two
// lowest bits and the position above them.
const (
	purgeCompleted = iota
	purgeDead
	purgePending
	purgeEnd
)

// Purge implements storage.Operator: a look without locks at a page of one kind of messages,
// and a transaction that deletes those found.
func (s *Store) Purge(ctx context.Context, p storage.PurgeParams) (storage.BatchResult, error) {
	kind, after := p.After&3, p.After>>2
	for ; kind < purgeEnd; kind, after = kind+1, 0 {
		if !purges(kind, p.Filter) {
			continue
		}
		found, err := s.pick(ctx, "purge", s.purgePick(kind), p.Filter, after, p.DryRun)
		if err != nil {
			return storage.BatchResult{}, err
		}
		found = found.cut(p.Limit, p.DryRun)
		next := found.last<<2 | kind
		if found.last == 0 {
			if next = kind + 1; next == purgeEnd {
				next = 0
			}
		}
		if len(found.rows) == 0 {
			if found.last == 0 {
				continue
			}
			now, err := s.Now(ctx)
			return storage.BatchResult{Next: next, Now: now}, err
		}
		out := storage.BatchResult{Count: len(found.rows), Next: next}
		if p.DryRun {
			out.Now, err = s.Now(ctx)
			return out, err
		}
		if err := s.purge(ctx, kind, p.Filter, found, &out); err != nil {
			return storage.BatchResult{}, err
		}
		out.Left = len(found.rows) - out.Count
		return out, nil
	}
	now, err := s.Now(ctx)
	return storage.BatchResult{Now: now}, err
}

// purges tells whether a filter can mean messages of a kind at all.
func purges(kind int64, f storage.ListMessagesParams) bool {
	has := func(states ...storage.State) bool {
		return len(f.States) == 0 || slices.ContainsFunc(states, func(s storage.State) bool { return slices.Contains(f.States, s) })
	}
	switch kind {
	case purgeCompleted:
		return has(storage.StateCompleted) && len(f.DeadReasons) == 0
	case purgeDead:
		return has(storage.StateDead, storage.StateCancelled)
	default:
		return has(storage.StatePending) && len(f.DeadReasons) == 0
	}
}

func (s *Store) purgePick(kind int64) string {
	switch kind {
	case purgeCompleted:
		return s.sql.pickCompleted
	case purgeDead:
		return s.sql.pickDead
	default:
		return s.sql.pickPending
	}
}

// purge deletes what was found.
func (s *Store) purge(ctx context.Context, kind int64, filter storage.ListMessagesParams, found page, out *storage.BatchResult) error {
	switch kind {
	case purgeCompleted:
		finished := make([]*time.Time, len(found.rows))
		for i, m := range found.rows {
			finished[i] = m.finishTime
		}
		return s.write(ctx, "purge", step{
			sql: s.sql.purgeCompleted, args: []any{filter.QueueID, found.positions(), finished}, scan: counted(out),
		})
	case purgeDead:
		return s.purgeDead(ctx, filter.QueueID, found, out)
	default:
		return s.purgePending(ctx, filter, found, out)
	}
}

// purgeDead deletes dead and cancelled messages. Those that block their ordering keys need them.
func (s *Store) purgeDead(ctx context.Context, queueID int32, found page, out *storage.BatchResult) error {
	st := step{sql: s.sql.purgeDead, args: []any{queueID, found.positions()}, scan: counted(out)}
	ids, names := found.keys(queueID, func(m picked) bool { return m.blocks })
	if len(names) == 0 {
		return s.write(ctx, "purge", st)
	}
	var ready []int32
	err := s.operate(ctx, "purge", func(free bool) []step {
		return []step{{sql: s.lockNamesSQL(free), args: []any{ids, names}}}
	}, &ready, nil, st)
	out.Ready = len(ready) > 0
	return err
}

// purgePending deletes messages that nobody holds. Those with an ordering key need it.
func (s *Store) purgePending(ctx context.Context, filter storage.ListMessagesParams, found page, out *storage.BatchResult) error {
	filter.Positions = found.positions()
	st := step{sql: s.sql.purgePending, args: filterArgs(filter), scan: counted(out)}
	var refs []storage.Ref
	for _, position := range filter.Positions {
		if ref := (storage.Ref{QueueID: filter.QueueID, Position: position}); keyed(ref) {
			refs = append(refs, ref)
		}
	}
	if len(refs) == 0 {
		return s.write(ctx, "purge", st)
	}
	var ready []int32
	err := s.operate(ctx, "purge", func(free bool) []step {
		sql := s.sql.lockKeys
		if free {
			sql = s.sql.lockKeysFree
		}
		return []step{lockRefs(sql, refs, 0)}
	}, &ready, nil, st)
	out.Ready = len(ready) > 0
	return err
}
