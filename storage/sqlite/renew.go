package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/queuebox/queuebox/storage"
)

// Renew implements storage.Store. The write lock is held before the first lease is
// judged, so there is no waiting inside (S13).
func (s *Store) Renew(ctx context.Context, p storage.RenewParams) (storage.RenewResult, error) {
	res := storage.RenewResult{Items: make([]storage.Renewed, len(p.Items))}
	err := s.write(ctx, "renew", func(quiet context.Context, c *session) (verdict, error) {
		var err error
		if res.Now, err = c.now(quiet); err != nil {
			return rollback, err
		}
		v := rollback
		for i, it := range p.Items {
			if err := ctx.Err(); err != nil {
				return rollback, err
			}
			if res.Items[i], err = c.renew(quiet, it); err != nil {
				return rollback, err
			}
			if res.Items[i].Status == storage.ItemApplied {
				v = commit
			}
		}
		return v, nil
	})
	if err != nil {
		return storage.RenewResult{}, err
	}
	return res, nil
}

func (c *session) renew(ctx context.Context, it storage.Renewal) (storage.Renewed, error) {
	var leaseEnd int64
	res := storage.Renewed{Status: storage.ItemApplied}
	a := args(it.Ref.QueueID, it.Ref.Position, it.Token[:], toMillis(it.Lease), toMillis(it.MaxLease))
	err := c.one(ctx, qRenew, a, &leaseEnd, &res.CancelRequested)
	if err == nil {
		res.LeaseEnd = fromMillis(leaseEnd)
		return res, nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return res, err
	}
	why, err := c.explain(ctx, it.Ref, it.Token)
	if err != nil {
		return res, err
	}
	res = storage.Renewed{Status: why.status, Cause: why.cause}
	if why.status == storage.ItemSettled {
		res.Outcome = why.outcome
	}
	return res, nil
}
