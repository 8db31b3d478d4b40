package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// leave tells how many of the messages wanted the limits of the queue leave, and notes in
// the answer which limit it is where not all (L1, L2). Under the write lock nothing changes
// between this and the claim.
func (k *claiming) leave(ctx context.Context, q storage.Queue, want int) (int, error) {
	allowed := want
	if q.MaxClaimsPerSecond > 0 {
		err := k.c.one(ctx, qLimitBucket, args(q.ID), &k.bucket.Rate, &k.bucket.Full)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return 0, err
		}
		k.bucket = k.bucket.At(q.MaxClaimsPerSecond, k.res.Now)
		if n := k.bucket.Tokens(k.res.Now); n < allowed {
			allowed = n
			k.res.Limit, k.res.LimitEnd = storage.LimitRate, k.bucket.Next()
		}
	}
	if q.MaxInFlight > 0 {
		var leased int
		var end sql.NullInt64
		if err := k.c.one(ctx, qLimitLeased, args(q.ID), &leased, &end); err != nil {
			return 0, err
		}
		if n := max(0, int(q.MaxInFlight)-leased); n <= allowed && n < want {
			allowed = n
			k.res.Limit, k.res.LimitEnd = storage.LimitInFlight, fromNullMillis(end)
		}
	}
	return allowed, nil
}

// spend notes what was taken of the messages that the limits left.
func (k *claiming) spend(ctx context.Context, q storage.Queue, allowed int, taken []storage.Claimed) error {
	if len(taken) < allowed {
		k.res.Limit, k.res.LimitEnd = storage.LimitNone, time.Time{}
	} else if k.res.Limit != storage.LimitNone {
		k.res.More = false
	}
	if q.MaxInFlight > 0 && len(taken) > 0 {
		if _, err := k.c.exec(ctx, qLimitTidy, q.ID); err != nil {
			return err
		}
		for _, m := range taken {
			if _, err := k.c.exec(ctx, qLimitSlot, q.ID, m.Message.Ref.Position); err != nil {
				return err
			}
			if end := m.Message.LeaseEnd; k.res.Limit == storage.LimitInFlight &&
				(k.res.LimitEnd.IsZero() || end.Before(k.res.LimitEnd)) {
				k.res.LimitEnd = end
			}
		}
	}
	if q.MaxClaimsPerSecond > 0 && len(taken) > 0 {
		k.bucket = k.bucket.Take(k.res.Now, len(taken))
		if k.res.Limit == storage.LimitRate {
			k.res.LimitEnd = k.bucket.Next()
		}
		if _, err := k.c.exec(ctx, qLimitBucketPut, q.ID, k.bucket.Rate, k.bucket.Full); err != nil {
			return err
		}
	}
	return nil
}
