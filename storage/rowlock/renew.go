package rowlock

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qRenew   statement = "renew"
	qRenewed statement = "renewed"
)

// Renew implements storage.Store. A claim that stands in several items is renewed once, as its
// last item says, and all of them are told so.
func (s *Store) Renew(ctx context.Context, p storage.RenewParams) (storage.RenewResult, error) {
	var (
		distinct []storage.Renewal
		at       = make([]int, len(p.Items))
		seen     = make(map[storage.HeldClaim]int, len(p.Items))
	)
	for i, it := range p.Items {
		k, again := seen[storage.HeldClaim{Ref: it.Ref, Token: it.Token}]
		if !again {
			k = len(distinct)
			seen[storage.HeldClaim{Ref: it.Ref, Token: it.Token}] = k
			distinct = append(distinct, it)
		}
		distinct[k], at[i] = it, k
	}
	if len(distinct) == 0 {
		now, err := s.Now(ctx)
		return storage.RenewResult{Items: []storage.Renewed{}, Now: now}, err
	}
	r := &renewing{s: s, items: distinct, lockWait: p.LockWait, answers: make([]storage.Renewed, len(distinct))}
	if err := r.run(ctx); err != nil {
		return storage.RenewResult{}, err
	}
	out := storage.RenewResult{Items: make([]storage.Renewed, len(p.Items)), Now: r.now}
	for i, k := range at {
		out.Items[i] = r.answers[k]
	}
	return out, nil
}

// renewing is one Renew. An item without an answer has a zero status.
type renewing struct {
	s       *Store
	items   []storage.Renewal
	answers []storage.Renewed
	now     time.Time
	// lockWait, where it is set, says that nobody waits for a row.
	lockWait storage.LockWait
}

// run renews what nobody else has locked in one transaction, asks what became of the rest, and
// tries those one by one that somebody has locked.
func (r *renewing) run(ctx context.Context) error {
	all := make([]int, len(r.items))
	for i := range all {
		all[i] = i
	}
	answers, now, err := r.once(ctx, skipTaken, all)
	if err != nil {
		return err
	}
	r.now = now
	left := r.fill(all, answers)
	if len(left) == 0 {
		return nil
	}
	held, err := r.diagnose(ctx, left)
	if err != nil {
		if len(left) == len(all) {
			return err
		}
		// Some items are applied, so the call has not failed; what the others are is unknown.
		r.unknown(left)
		return nil
	}
	if len(held) == 0 {
		return nil
	}
	if r.lockWait > 0 {
		for _, i := range held {
			r.answers[i] = storage.Renewed{Status: storage.ItemHeld}
		}
		return nil
	}
	held, err = heldAgain(ctx, held, func(some []int) ([]int, error) {
		answers, now, err := r.once(ctx, skipTaken, some)
		if err != nil {
			return nil, err
		}
		if now.After(r.now) {
			r.now = now
		}
		return r.fill(some, answers), nil
	})
	if err != nil {
		return err
	}
	var lock sync.Mutex
	err = r.s.slow.Wait(ctx, held, func(ctx context.Context, i int) error {
		answers, now, err := r.once(ctx, waitTaken, []int{i})
		if err != nil {
			return err
		}
		lock.Lock()
		defer lock.Unlock()
		r.answers[i] = answers[0]
		if now.After(r.now) {
			r.now = now
		}
		return nil
	})
	if err != nil {
		return err
	}
	var open []int
	for _, i := range held {
		if r.answers[i].Status == 0 {
			open = append(open, i)
		}
	}
	if len(open) > 0 {
		if held, err = r.diagnose(ctx, open); err != nil {
			held = open
		}
		r.unknown(held)
	}
	return nil
}

// fill puts answers in their places and gives the items that have none.
func (r *renewing) fill(some []int, answers []storage.Renewed) (left []int) {
	for k, i := range some {
		r.answers[i] = answers[k]
		if answers[k].Status == 0 {
			left = append(left, i)
		}
	}
	return left
}

func (r *renewing) unknown(some []int) {
	for _, i := range some {
		r.answers[i] = storage.Renewed{Status: storage.ItemUnknown}
	}
}

// once is one transaction: it locks, renews and reads. What it does not answer was not there to
// be locked.
func (r *renewing) once(ctx context.Context, how taken, some []int) (answers []storage.Renewed, now time.Time, err error) {
	claims := make([]storage.HeldClaim, len(some))
	for k, i := range some {
		claims[k] = storage.HeldClaim{Ref: r.items[i].Ref, Token: r.items[i].Token}
	}
	err = r.s.write(ctx, "renew", func(c *session) (verdict, error) {
		answers = make([]storage.Renewed, len(some))
		locked, err := c.lockHeld(ctx, how, claims)
		if err != nil {
			return rollback, err
		}
		if len(locked) == 0 {
			now, err = c.now(ctx)
			return rollback, err
		}
		renewals, leases := make([][]any, len(locked)), make([][]any, len(locked))
		before := make(map[int]time.Time, len(locked))
		for n, l := range locked {
			it := &r.items[some[l.item]]
			before[l.item] = l.leaseEnd
			renewals[n] = append(c.claimRow(claims[l.item]), ceilDuration(it.Lease).Microseconds(), it.MaxLease.Microseconds())
			leases[n] = []any{l.item, idOf(it.Ref.Position)}
		}
		var n int64
		err = c.together(ctx, changing(qRenew, &n, c.list(renewals)), reading(qRenewed, args(c.list(leases)), func(rows *sql.Rows) error {
			var (
				k     int
				end   time.Time
				asked bool
			)
			if err := rows.Scan(&now, &k, &end, &asked); err != nil {
				return err
			}
			now, end = now.UTC(), end.UTC()
			answers[k] = storage.Renewed{Status: storage.ItemApplied, LeaseEnd: end, CancelRequested: asked}
			if int(n) < len(locked) && end.Equal(before[k]) && !end.After(now) {
				// Locked, and the lease was over: lost for certain, which a look without the
				// lock could not say.
				answers[k] = storage.Renewed{Status: storage.ItemLost, Cause: storage.LostLeaseExpired}
			}
			return nil
		}))
		return verdict(n > 0), err
	})
	return answers, now, err
}

// diagnose answers items that were not renewed, and returns those of which the claim seems to
// hold.
func (r *renewing) diagnose(ctx context.Context, some []int) (held []int, err error) {
	claims := make([]storage.HeldClaim, len(some))
	for k, i := range some {
		claims[k] = storage.HeldClaim{Ref: r.items[i].Ref, Token: r.items[i].Token}
	}
	all, now, err := r.s.diagnose(ctx, "renew", claims)
	if err != nil {
		return nil, err
	}
	r.now = now
	for k, i := range some {
		if all[k].held() {
			held = append(held, i)
			continue
		}
		r.answers[i] = all[k].renewed()
	}
	return held, nil
}

// renewed is what a renewal is told whose claim does not hold.
func (f *facts) renewed() storage.Renewed {
	var out storage.Renewed
	out.Status, out.Cause = f.verdict()
	if rec := f.recorded(); rec != nil {
		out.Outcome = rec.outcome
	}
	return out
}
