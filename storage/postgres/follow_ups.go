package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/slowlane"
)

// settleWithFollowUps settles a call of which some items enqueue (S10). Those go in a lane of
// their own, one transaction an item, so that the others pay nothing for them.
func (s *Store) settleWithFollowUps(ctx context.Context, p storage.SettleParams) (storage.SettleResult, error) {
	out := storage.SettleResult{Items: make([]storage.Settled, len(p.Items))}
	plain := storage.SettleParams{LockWait: p.LockWait}
	var plainAt, with []int
	for i := range p.Items {
		if len(p.Items[i].FollowUps) > 0 {
			with = append(with, i)
			continue
		}
		plain.Items = append(plain.Items, p.Items[i])
		plainAt = append(plainAt, i)
	}
	if len(plain.Items) > 0 {
		res, err := s.Settle(ctx, plain)
		if err != nil {
			return out, err
		}
		for k, i := range plainAt {
			out.Items[i] = res.Items[k]
		}
		out.Ready, out.Now = res.Ready, res.Now
	}
	c := completions{store: s, items: p.Items, lockWait: p.LockWait, out: &out, errs: make([]error, len(p.Items))}
	err := s.follow.Each(ctx, with, c.try)
	if err == nil {
		err = c.wait(ctx)
	}
	if err != nil {
		return out, err
	}
	// Where nothing of the call was answered it has failed, and nothing changed.
	for _, i := range with {
		if out.Items[i].Status == 0 && len(plainAt) == 0 && !slices.ContainsFunc(with, func(i int) bool { return out.Items[i].Status != 0 }) {
			return out, c.errs[i]
		}
	}
	unknown(with, func(i int) {
		if out.Items[i].Status == 0 {
			out.Items[i] = storage.Settled{Status: storage.ItemUnknown}
		}
	})
	return out, nil
}

// completions are the items of a call that have follow-ups.
type completions struct {
	store *Store
	items []storage.Settlement
	// lockWait bounds the waits for keys; where it is set nobody waits for a row.
	lockWait storage.LockWait

	lock sync.Mutex
	out  *storage.SettleResult
	// errs say why an item is not answered; held are those whose row somebody else has.
	errs []error
	held []int
}

// try completes item i where nobody holds its row. An error that proves that nothing changed
// is that of the item alone.
func (c *completions) try(ctx context.Context, i int) error {
	got, err := c.store.completeWith(ctx, &c.items[i], c.lockWait)
	var held []int
	single := storage.SettleResult{Items: make([]storage.Settled, len(c.items)), Now: got.now}
	if err == nil && got.settled.Status == 0 {
		held, err = c.store.settleDiagnose(ctx, c.items, []int{i}, &single)
		got.settled = single.Items[i]
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	c.errs[i] = err
	if c.lockWait > 0 && errors.Is(err, storage.ErrLocked) {
		held, err = []int{i}, nil
	}
	if errors.Is(err, storage.ErrUnavailable) {
		return nil
	}
	if err != nil {
		return err
	}
	c.out.Items[i] = got.settled
	c.out.Ready = unite(c.out.Ready, got.ready...)
	if single.Now.After(c.out.Now) {
		c.out.Now = single.Now
	}
	c.held = append(c.held, held...)
	return nil
}

// answered tells that item i needs no other try.
func (c *completions) answered(i int) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.errs[i] != nil || c.out.Items[i].Status != 0
}

// wait gives the items whose row somebody else has their turn in the slow lane. The wait comes
// before the locks of the keys, which are for nobody to hold for long. What is still held then
// is unknown.
func (c *completions) wait(ctx context.Context) error {
	held := c.held
	if len(held) == 0 {
		return nil
	}
	if c.lockWait > 0 {
		unknown(held, func(i int) { c.out.Items[i] = storage.Settled{Status: storage.ItemHeld} })
		return nil
	}
	err := c.store.slow.Wait(ctx, held, func(ctx context.Context, i int) error {
		return c.store.waitOutside(ctx, "settle", c.items[i].Ref, func() (bool, error) {
			err := c.try(ctx, i)
			return c.answered(i), err
		})
	})
	if err != nil {
		return err
	}
	var left []int
	for _, i := range held {
		if c.out.Items[i].Status == 0 {
			left = append(left, i)
		}
	}
	if len(left) > 0 {
		if still, err := c.store.settleDiagnose(ctx, c.items, left, c.out); err == nil {
			left = still
		}
		unknown(left, func(i int) { c.out.Items[i] = storage.Settled{Status: storage.ItemUnknown} })
	}
	return nil
}

// completed is what became of a completion with follow-ups; Status 0 where the row was not
// had, for somebody else holds it or the claim does not.
type completed struct {
	settled storage.Settled
	ready   []int32
	now     time.Time
}

// completeWith completes a message and enqueues its follow-ups in one transaction, or does
// neither.
func (s *Store) completeWith(ctx context.Context, it *storage.Settlement, wait storage.LockWait) (got completed, err error) {
	try := func(wait storage.LockWait) (err error) {
		again := true
		for n := 0; again && n < keyTries; n++ {
			if got, again, err = s.completeOnce(ctx, it, wait); err != nil {
				return err
			}
		}
		if again {
			return fmt.Errorf("postgres: settle: %w: an idempotency key keeps vanishing", storage.ErrUnavailable)
		}
		return nil
	}
	if !keyed(it.Ref) && len(orderingKeys(it.FollowUps)) == 0 {
		err = try(wait)
	} else {
		err = slowlane.UntilFree(ctx, cmp.Or(wait, lockWait), try)
	}
	return got, err
}

// completeOnce takes two round trips: the keys are locked, the ordering keys before all else
// (D12), positions are drawn and the message is settled; then, where the claim holds and the
// idempotency keys allow it, the follow-ups are inserted and the ordering keys put right.
func (s *Store) completeOnce(ctx context.Context, it *storage.Settlement, wait storage.LockWait) (got completed, again bool, err error) {
	var (
		ordering = orderingKeys(it.FollowUps)
		first    = s.lockCompletion(it.Ref, ordering, wait)
		promotes = len(first) > 0
		taken    = s.takeKeys(it.FollowUps, wait, promotes)
		plan     keyedPlan
		rows     []inserted
		out      = storage.SettleResult{Items: make([]storage.Settled, 1)}
		answered = make([]bool, 1)
	)
	if !promotes {
		first = atMost(wait)
	}
	first = append(first, taken.steps...)
	first = append(first, s.settleStep(s.sql.settle, []storage.Settlement{*it}, []int{0}, answered, &out))
	err = s.transact(ctx, "settle", first, func() ([]step, bool) {
		got, again = completed{settled: out.Items[0], now: out.Now.UTC()}, false
		if got.settled.Status != storage.ItemApplied {
			return nil, false
		}
		plan = planKeyed(it.FollowUps, taken.positions, taken.held)
		switch again = plan.again; {
		case again:
			return nil, false
		case plan.reused:
			got.settled = storage.Settled{Status: storage.ItemKeyReused, KeyReused: slices.IndexFunc(plan.items, func(e storage.Enqueued) bool {
				return e.Status == storage.EnqueueKeyReused
			})}
			return nil, false
		}
		steps := s.insertKeyed(it.FollowUps, &plan, taken, ordering, &rows)
		refs := make([]int64, 0, 2*len(plan.items))
		for _, e := range plan.items {
			refs = append(refs, int64(e.Ref.QueueID), e.Ref.Position)
			got.settled.FollowUps = append(got.settled.FollowUps, e.Ref)
			got.settled.Duplicates = append(got.settled.Duplicates, e.Status == storage.EnqueueDuplicate)
		}
		steps = append(steps, step{
			sql: s.sql.completeFollowUps, args: []any{it.Ref.QueueID, it.Ref.Position, got.settled.SettleTime, refs},
		})
		if promotes {
			steps = append(steps, s.promoteStep(&got.ready))
		}
		return steps, true
	})
	if err != nil {
		return completed{}, false, noQueue("settle", err)
	}
	if got.settled.Status == storage.ItemApplied {
		if len(rows) != len(plan.fresh) {
			return got, false, fmt.Errorf("postgres: settle: %d rows for %d follow-ups", len(rows), len(plan.fresh))
		}
		for _, i := range plan.fresh {
			got.ready = unite(got.ready, it.FollowUps[i].QueueID)
		}
	}
	return got, again, nil
}

// lockCompletion gives the steps that lock the ordering keys of a completion, none where there
// are none.
func (s *Store) lockCompletion(ref storage.Ref, followUps namedKeys, wait storage.LockWait) []step {
	switch {
	case len(followUps) == 0 && !keyed(ref):
		return nil
	case !keyed(ref):
		return s.takeNames(followUps, wait)
	case len(followUps) == 0:
		return []step{lockRefs(s.sql.lockKeys, []storage.Ref{ref}, wait)}
	}
	ids, names := followUps.columns()
	return append(
		append(keep(wait), atMost(wait)...),
		step{sql: s.sql.addNames, args: []any{ids, names}},
		step{sql: s.sql.lockCompletion, args: []any{ref.QueueID, ref.Position, ids, names}},
	)
}

// fromFollowUps reads what complete_follow_ups.sql has kept.
func fromFollowUps(pairs []int64) []storage.Ref {
	var refs []storage.Ref
	for i := 0; i+1 < len(pairs); i += 2 {
		refs = append(refs, storage.Ref{QueueID: int32(pairs[i]), Position: pairs[i+1]})
	}
	return refs
}
