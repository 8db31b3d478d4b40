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
	if ids, names := found.keys(p.Filter.QueueID, func(picked) bool { return true }); len(names) == 0 {
		err = s.write(ctx, "redrive", st)
	} else {
		err = s.operate(ctx, "redrive", func(free bool) []step {
			return []step{{sql: s.sql.addNames, args: []any{ids, names}}, {sql: s.lockNamesSQL(free), args: []any{ids, names}}}
		}, nil, st)
	}
	if err != nil {
		return storage.BatchResult{}, err
	}
	out.Left = len(found.rows) - out.Count
	out.Ready = out.Count > 0
	return out, nil
}
