package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

// Renew implements storage.Store. A claim that stands in several items is renewed once,
// as its last item says, and all of them are told so: an UPDATE touches a row once, and
// the other items would look as if somebody held it.
func (s *Store) Renew(ctx context.Context, p storage.RenewParams) (storage.RenewResult, error) {
	var (
		distinct []storage.Renewal
		at       = make([]int, len(p.Items))
		seen     = make(map[storage.HeldClaim]int, len(p.Items))
	)
	for i, it := range p.Items {
		claim := storage.HeldClaim{Ref: it.Ref, Token: it.Token}
		k, again := seen[claim]
		if !again {
			k = len(distinct)
			seen[claim] = k
			distinct = append(distinct, it)
		}
		distinct[k], at[i] = it, k
	}
	res, err := s.renew(ctx, storage.RenewParams{Items: distinct, LockWait: p.LockWait})
	if err != nil || len(distinct) == len(p.Items) {
		return res, err
	}
	out := storage.RenewResult{Items: make([]storage.Renewed, len(p.Items)), Now: res.Now}
	for i, k := range at {
		out.Items[i] = res.Items[k]
	}
	return out, nil
}

// renew works in the same three steps as Settle.
func (s *Store) renew(ctx context.Context, p storage.RenewParams) (storage.RenewResult, error) {
	out := storage.RenewResult{Items: make([]storage.Renewed, len(p.Items))}
	all := make([]int, len(p.Items))
	for i := range p.Items {
		all[i] = i
	}
	if len(all) == 0 {
		now, err := s.Now(ctx)
		out.Now = now
		return out, err
	}
	left, err := s.renewOnce(ctx, s.sql.renew, p.Items, all, &out)
	if err != nil || len(left) == 0 {
		return out, err
	}
	applied := len(left) < len(all)
	held, err := s.renewDiagnose(ctx, p.Items, left, &out)
	if err != nil {
		if !applied {
			return out, err
		}
		// Some items are applied, so the call has not failed; what the others are is unknown.
		held = nil
		unknown(left, func(i int) { out.Items[i] = storage.Renewed{Status: storage.ItemUnknown} })
	}
	held, err = s.heldAgain(ctx, held, p.LockWait, func(some []int) ([]int, error) {
		left, err := s.renewOnce(ctx, s.sql.renew, p.Items, some, &out)
		if err != nil || len(left) == 0 {
			return nil, err
		}
		still, err := s.renewDiagnose(ctx, p.Items, left, &out)
		if err != nil {
			return left, nil //nolint:nilerr // The last look, after the slow lane, tells.
		}
		return still, nil
	})
	if err != nil {
		return out, err
	}
	if len(held) == 0 {
		return out, nil
	}
	if p.LockWait > 0 {
		unknown(held, func(i int) { out.Items[i] = storage.Renewed{Status: storage.ItemHeld} })
		return out, nil
	}
	var lock sync.Mutex
	err = s.slow.Wait(ctx, held, func(ctx context.Context, i int) error {
		single := storage.RenewResult{Items: make([]storage.Renewed, 1)}
		_, err := s.renewOnce(ctx, s.sql.renewWait, p.Items[i:i+1], []int{0}, &single)
		if err != nil {
			return err
		}
		lock.Lock()
		defer lock.Unlock()
		out.Items[i] = single.Items[0]
		return nil
	})
	if err != nil {
		return out, err
	}
	left = left[:0]
	for _, i := range held {
		if out.Items[i].Status == 0 {
			left = append(left, i)
		}
	}
	if len(left) == 0 {
		return out, nil
	}
	if held, err = s.renewDiagnose(ctx, p.Items, left, &out); err != nil {
		held = left
	}
	unknown(held, func(i int) { out.Items[i] = storage.Renewed{Status: storage.ItemUnknown} })
	return out, nil
}

// renewOnce runs a renew statement for some items and returns those that it did not
// answer, as settleOnce does.
func (s *Store) renewOnce(ctx context.Context, sql string, items []storage.Renewal, some []int, out *storage.RenewResult) (left []int, err error) {
	n := len(some)
	var (
		ids       = make([]int32, n)
		positions = make([]int64, n)
		tokens    = make([][16]byte, n)
		leases    = make([]int64, n)
		most      = make([]int64, n)
		answered  = make([]bool, n)
	)
	for k, i := range some {
		it := &items[i]
		ids[k], positions[k], tokens[k] = it.Ref.QueueID, it.Ref.Position, it.Token
		leases[k], most[k] = it.Lease.Microseconds(), it.MaxLease.Microseconds()
	}
	err = s.write(ctx, "renew", step{
		sql: sql, args: []any{ids, positions, tokens, leases, most},
		scan: each(func() {
			clear(answered)
			for _, i := range some {
				out.Items[i] = storage.Renewed{}
			}
		}, func(r pgx.Rows) error {
			var (
				ord    *int64
				end    *time.Time
				cancel *bool
			)
			if err := r.Scan(&out.Now, &ord, &end, &cancel); err != nil {
				return err
			}
			if ord == nil {
				return nil
			}
			answered[*ord-1] = true
			if end == nil {
				out.Items[some[*ord-1]] = storage.Renewed{Status: storage.ItemLost, Cause: storage.LostLeaseExpired}
				return nil
			}
			out.Items[some[*ord-1]] = storage.Renewed{
				Status: storage.ItemApplied, LeaseEnd: utc(end), CancelRequested: is(cancel),
			}
			return nil
		}),
	})
	if err != nil {
		return nil, err
	}
	out.Now = out.Now.UTC()
	for k, i := range some {
		if !answered[k] {
			left = append(left, i)
		}
	}
	return left, nil
}

// renewDiagnose answers items that were not renewed, and returns those of which the
// claim seems to hold.
func (s *Store) renewDiagnose(ctx context.Context, items []storage.Renewal, some []int, out *storage.RenewResult) (held []int, err error) {
	claims := make([]storage.HeldClaim, len(some))
	for k, i := range some {
		claims[k] = storage.HeldClaim{Ref: items[i].Ref, Token: items[i].Token}
	}
	facts, now, err := s.diagnose(ctx, "renew", claims)
	if err != nil {
		return nil, err
	}
	out.Now = now
	for k, i := range some {
		f := facts[k]
		if f.held() {
			held = append(held, i)
			continue
		}
		item := storage.Renewed{}
		item.Status, item.Cause = f.verdict()
		if rec := f.recorded(); rec != nil {
			item.Outcome = rec.outcome
		}
		out.Items[i] = item
	}
	return held, nil
}
