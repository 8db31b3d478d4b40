package rowlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/slowlane"
)

const qCompleteFollowUps statement = "complete_follow_ups"

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
			return out, c.failed(ctx, i)
		}
	}
	for _, i := range with {
		if out.Items[i].Status == 0 {
			out.Items[i] = storage.Settled{Status: storage.ItemUnknown}
		}
	}
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

// failed is why nothing of a call was answered.
func (c *completions) failed(ctx context.Context, i int) error {
	if c.errs[i] != nil {
		return c.errs[i]
	}
	return c.store.classify("settle", ctx.Err(), false) // it never had its turn
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
		for _, i := range held {
			c.out.Items[i] = storage.Settled{Status: storage.ItemHeld}
		}
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
		unknown(left, c.out.Items)
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
// neither. The locks are had in the one order (D12): ordering keys, that of the message among
// them, then the idempotency keys of the follow-ups, then the message. The follow-ups are
// inserted after the message is gone, and the ordering keys put right at the end.
func (s *Store) completeWith(ctx context.Context, it *storage.Settlement, wait storage.LockWait) (got completed, err error) {
	if wait > 0 || !keyed(it.Ref) && len(orderingKeys(it.FollowUps)) == 0 {
		return s.completeOnce(ctx, it, wait > 0)
	}
	err = slowlane.UntilFree(ctx, lockWait, func(time.Duration) (err error) {
		got, err = s.completeOnce(ctx, it, true)
		return err
	})
	return got, err
}

// completeOnce is completeWith; tries says that it waits for no idempotency key.
func (s *Store) completeOnce(ctx context.Context, it *storage.Settlement, tries bool) (completed, error) {
	var got completed
	err := s.write(ctx, "settle", func(c *session) (verdict, error) {
		got = completed{}
		b, err := c.newBatch(it.FollowUps)
		if err != nil {
			return rollback, err
		}
		b.tries = tries
		keys, err := c.lockAll(ctx, []storage.Ref{it.Ref}, orderingKeys(it.FollowUps), waitTaken)
		if err != nil {
			return rollback, err
		}
		if err := b.decide(ctx); err != nil {
			return rollback, err
		}
		out := storage.SettleResult{Items: make([]storage.Settled, 1)}
		v, err := c.settle(ctx, []storage.Settlement{*it}, []int{0}, keys, &out)
		got.settled, got.now = out.Items[0], out.Now
		switch {
		case err != nil || v == rollback:
			return rollback, err
		case b.reused:
			got.settled = storage.Settled{Status: storage.ItemKeyReused, KeyReused: slices.IndexFunc(b.items, func(e storage.Enqueued) bool {
				return e.Status == storage.EnqueueKeyReused
			})}
			return rollback, nil
		}
		if err := b.put(ctx, keys.named); err != nil {
			return rollback, err
		}
		pairs := make([][2]int64, len(b.items))
		for i, e := range b.items {
			pairs[i] = [2]int64{int64(e.Ref.QueueID), e.Ref.Position}
			got.settled.FollowUps = append(got.settled.FollowUps, e.Ref)
			got.settled.Duplicates = append(got.settled.Duplicates, e.Status == storage.EnqueueDuplicate)
			if e.Status == storage.EnqueueInserted {
				got.ready = unite(got.ready, e.Ref.QueueID)
			}
		}
		if err := c.keepFollowUps(ctx, it.Ref, pairs); err != nil {
			return rollback, err
		}
		ready, _, err := c.promote(ctx, keys.ids)
		got.ready = unite(got.ready, ready...)
		return commit, err
	})
	return got, err
}

// keepFollowUps keeps with a message that the transaction has completed which messages it
// enqueued with it (S10), for whoever repeats the completion (S5).
func (c *session) keepFollowUps(ctx context.Context, ref storage.Ref, pairs [][2]int64) error {
	text, err := json.Marshal(pairs)
	if err != nil {
		return fmt.Errorf("follow-ups: %w", err)
	}
	return c.exactly(ctx, qCompleteFollowUps, 1,
		a("queue_id", ref.QueueID), a("id", idOf(ref.Position)), a("follow_ups", c.s.engine.Values.List(text)))
}
