package postgres

import (
	"context"

	"github.com/queuebox/queuebox/storage"
)

// Redrive implements storage.Operator: a look without locks at a page of the dead messages,
// and a transaction that moves those found.
func (s *Store) Redrive(ctx context.Context, p storage.RedriveParams) (storage.BatchResult, error) {
	p.Filter.States = []storage.State{storage.StateDead}
	found, err := s.pick(ctx, "redrive", s.sql.pickDead, p.Filter, p.After, p.DryRun)
	if err != nil {
		return storage.BatchResult{}, err
	}
	found = found.cut(p.Limit, p.DryRun)
	out := storage.BatchResult{Count: len(found.rows), Next: found.last}
	if p.DryRun || len(found.rows) == 0 {
		out.Now, err = s.Now(ctx)
		return out, err
	}
	st := step{sql: s.sql.redrive, args: []any{
		p.Filter.QueueID, found.positions(), p.Delay.Nanoseconds(), p.Step.Nanoseconds(), p.MaxAttempts,
	}, scan: counted(&out)}
	var held bool
	if ids, names := found.keys(p.Filter.QueueID, func(picked) bool { return true }); len(names) == 0 {
		err = s.write(ctx, "redrive", st)
	} else {
		err = s.operate(ctx, "redrive", func(free bool) []step {
			return []step{{sql: s.sql.addNames, args: []any{ids, names}}, {sql: s.lockNamesSQL(free), args: []any{ids, names}}}
		}, nil, &held, st)
	}
	if err != nil {
		return storage.BatchResult{}, err
	}
	// They keep their positions, so they come back where the sweep may have met nothing.
	for _, position := range found.positions() {
		s.emptyMessages.open(storage.Ref{QueueID: p.Filter.QueueID, Position: position})
	}
	if held {
		// It is the head at once, unless somebody holds a lease (O7): a claim that only looked at
		// the head must not keep it one.
		if err := s.headsAgain(ctx, "redrive: heads", found.ordered(p.Filter.QueueID)); err != nil {
			s.log.DebugContext(ctx, "heads are left to the sweep of the keys", "error", err)
		}
	}
	out.Left = len(found.rows) - out.Count
	out.Ready = out.Count > 0
	return out, nil
}
