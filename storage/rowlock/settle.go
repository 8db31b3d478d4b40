package rowlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/slowlane"
)

// Settle implements storage.Store. Messages without ordering keys and messages with them go
// in lanes of their own, so that the former pay nothing for the latter.
func (s *Store) Settle(ctx context.Context, p storage.SettleParams) (storage.SettleResult, error) {
	out := storage.SettleResult{Items: make([]storage.Settled, len(p.Items))}
	var plain, ordered []int
	for i := range p.Items {
		if len(p.Items[i].FollowUps) > 0 {
			return s.settleWithFollowUps(ctx, p)
		}
		if keyed(p.Items[i].Ref) {
			ordered = append(ordered, i)
		} else {
			plain = append(plain, i)
		}
	}
	switch {
	case len(p.Items) == 0:
		now, err := s.Now(ctx)
		out.Now = now
		return out, err
	case len(ordered) == 0:
		return out, s.settleLane(ctx, p, plain, false, &out)
	case len(plain) == 0:
		return out, s.settleLane(ctx, p, ordered, true, &out)
	}
	// Each lane writes its own result, and they are put together afterwards.
	other := storage.SettleResult{Items: make([]storage.Settled, len(p.Items))}
	errs := [2]error{}
	var both sync.WaitGroup
	both.Go(func() {
		errs[1] = slowlane.Guard(func() error { return s.settleLane(ctx, p, ordered, true, &other) })
	})
	errs[0] = s.settleLane(ctx, p, plain, false, &out)
	both.Wait()
	for _, i := range ordered {
		out.Items[i] = other.Items[i]
	}
	out.Ready = unite(out.Ready, other.Ready...)
	if other.Now.After(out.Now) {
		out.Now = other.Now
	}
	for _, err := range errs {
		if errors.Is(err, storage.ErrOutcomeUnknown) {
			return out, err // which a repeat of the whole call finds out
		}
	}
	switch {
	case errs[0] == nil && errs[1] == nil:
		return out, nil
	case errs[0] != nil && errs[1] != nil:
		return out, errs[0]
	}
	// One lane is through, so the call has not failed; of the other nothing happened.
	failed := plain
	if errs[1] != nil {
		failed = ordered
	}
	unknown(failed, out.Items)
	return out, nil
}

// settleLane settles some of the items in one transaction. Only items that it did not answer
// cost more: one look for all of them, and the slow lane for those whose row was locked.
func (s *Store) settleLane(ctx context.Context, p storage.SettleParams, all []int, ordered bool, out *storage.SettleResult) error {
	items := p.Items
	left, err := s.settleJoined(ctx, p, all, ordered, out)
	if err != nil || len(left) == 0 {
		return err
	}
	applied := len(left) < len(all)
	held, err := s.settleDiagnose(ctx, items, left, out)
	if err != nil {
		if !applied {
			return err
		}
		// Some items are applied, so the call has not failed; what the others are is unknown.
		held = nil
		unknown(left, out.Items)
	}
	if len(held) == 0 {
		return nil
	}
	if p.LockWait > 0 {
		for _, i := range held {
			out.Items[i] = storage.Settled{Status: storage.ItemHeld}
		}
		return nil
	}
	held, err = heldAgain(ctx, held, func(some []int) ([]int, error) {
		again := storage.SettleResult{Items: out.Items}
		left, err := s.settleOnce(ctx, items, some, ordered, false, waitTaken, &again)
		out.Ready = unite(out.Ready, again.Ready...)
		if again.Now.After(out.Now) {
			out.Now = again.Now
		}
		return left, err
	})
	if err != nil {
		return err
	}
	var lock sync.Mutex
	err = s.slow.Wait(ctx, held, func(ctx context.Context, i int) error {
		single, err := s.settleHeld(ctx, items, i, ordered)
		if err != nil {
			return err
		}
		lock.Lock()
		defer lock.Unlock()
		out.Items[i] = single.Items[i]
		out.Ready = unite(out.Ready, single.Ready...)
		return nil
	})
	if err != nil {
		return err
	}
	left = left[:0]
	for _, i := range held {
		if out.Items[i].Status == 0 {
			left = append(left, i)
		}
	}
	if len(left) == 0 {
		return nil
	}
	if held, err = s.settleDiagnose(ctx, items, left, out); err != nil {
		held = left
	}
	unknown(held, out.Items)
	return nil
}

// settleJoined is settleOnce for all items of a call. Where its waits are bounded it waits for no
// ordering key longer than that: items whose key somebody else has are told as held.
func (s *Store) settleJoined(ctx context.Context, p storage.SettleParams, all []int, ordered bool, out *storage.SettleResult) (left []int, err error) {
	if !ordered || p.LockWait <= 0 {
		return s.settleOnce(ctx, p.Items, all, ordered, false, waitTaken, out)
	}
	some := all
	err = s.untilKeys(ctx, min(p.LockWait, keysAgain), func(how taken) error {
		once := storage.SettleResult{Items: out.Items}
		unanswered, err := s.settleOnce(ctx, p.Items, some, true, false, how, &once)
		if err != nil && (len(some) == len(all) || errors.Is(err, storage.ErrOutcomeUnknown)) {
			return err
		}
		if err != nil { // it did not happen: they are held as before, and who asks again for one hears of it
			for _, i := range some {
				out.Items[i] = storage.Settled{Status: storage.ItemHeld}
			}
			return nil
		}
		left = append(left, unanswered...)
		out.Now, out.Ready = once.Now, unite(out.Ready, once.Ready...)
		some = slices.DeleteFunc(slices.Clone(some), func(i int) bool { return out.Items[i].Status != storage.ItemHeld })
		if len(some) > 0 {
			return errKeyTaken
		}
		return nil
	})
	if errors.Is(err, errKeyTaken) {
		err = nil
	}
	return left, err
}

// keysAgain is how long a call of many callers tries keys again that somebody else has: longer
// than most transactions have one, and no time that the others would mind.
const keysAgain = 40 * time.Millisecond

// settleHeld settles one item whose row somebody else has locked: it waits for the row and
// then settles, in one transaction where no ordering key has to be locked first.
func (s *Store) settleHeld(ctx context.Context, items []storage.Settlement, i int, ordered bool) (storage.SettleResult, error) {
	single := storage.SettleResult{Items: make([]storage.Settled, len(items))}
	if !ordered {
		_, err := s.settleOnce(ctx, items, []int{i}, false, true, waitTaken, &single)
		return single, err
	}
	err := s.waitOutside(ctx, "settle", items[i].Ref, func() (answered bool, err error) {
		left, err := s.settleOnce(ctx, items, []int{i}, true, false, waitTaken, &single)
		if err != nil || len(left) == 0 {
			return true, err
		}
		held, err := s.settleDiagnose(ctx, items, left, &single)
		return len(held) == 0, err
	})
	return single, err
}

// settleOnce settles some items in one transaction and returns those that it did not answer:
// it applied the others, or had the lock of the row and saw that the lease is over, or passed over
// its key, as how says, which somebody else has. wait is for a single item, whose row it waits for.
func (s *Store) settleOnce(
	ctx context.Context, items []storage.Settlement, some []int, ordered, wait bool, how taken, out *storage.SettleResult,
) (left []int, err error) {
	err = s.write(ctx, "settle", func(c *session) (verdict, error) {
		for _, i := range some {
			out.Items[i] = storage.Settled{}
		}
		var keys lockedKeys
		free := some
		if ordered {
			refs := make([]storage.Ref, 0, len(some))
			for _, i := range some {
				refs = append(refs, items[i].Ref)
			}
			var err error
			if keys, err = c.lockKeys(ctx, refs, how); err != nil {
				return rollback, err
			}
			if len(keys.missed) > 0 {
				free = nil
				for _, i := range some {
					if keys.missed[idOf(items[i].Ref.Position)] {
						out.Items[i] = storage.Settled{Status: storage.ItemHeld}
					} else {
						free = append(free, i)
					}
				}
				if len(free) == 0 {
					out.Now, err = c.now(ctx)
					return rollback, err
				}
			}
		}
		if wait {
			if _, err := c.waitRow(ctx, items[some[0]].Ref); err != nil {
				return rollback, err
			}
		}
		v, err := c.settle(ctx, items, free, keys, out)
		if err != nil || v == rollback {
			return rollback, err
		}
		ready, _, err := c.promote(ctx, keys.ids)
		out.Ready = unite(nil, ready...)
		return commit, err
	})
	if err != nil {
		return nil, err
	}
	for _, i := range some {
		if out.Items[i].Status == 0 {
			left = append(left, i)
		}
	}
	return left, nil
}

// settleDiagnose answers items that were not applied, and returns those of which the claim
// seems to hold: their row was locked by somebody else.
func (s *Store) settleDiagnose(ctx context.Context, items []storage.Settlement, some []int, out *storage.SettleResult) (held []int, err error) {
	claims := make([]storage.HeldClaim, len(some))
	for k, i := range some {
		claims[k] = storage.HeldClaim{Ref: items[i].Ref, Token: items[i].Token}
	}
	found, now, err := s.diagnose(ctx, "settle", claims)
	if err != nil {
		return nil, err
	}
	out.Now = now
	for k, i := range some {
		f := &found[k]
		if f.held() {
			held = append(held, i)
			continue
		}
		out.Items[i] = f.settled(items[i].Action)
	}
	return held, nil
}

// settled answers a settlement whose fence did not hold: the facts again for a repeat (S5), the
// outcome alone for another settlement (S6).
func (f *facts) settled(action storage.Action) storage.Settled {
	status, cause := f.verdict()
	rec := f.recorded()
	switch {
	case rec == nil:
		return storage.Settled{Status: status, Cause: cause}
	case rec.action != action:
		return storage.Settled{Status: storage.ItemSettled, Outcome: rec.outcome}
	default:
		return storage.Settled{
			Status: storage.ItemAlreadySettled, Outcome: rec.outcome, DeadReason: rec.deadReason,
			SettleTime: rec.settleTime, AvailableTime: rec.availableTime, FollowUps: rec.followUps,
		}
	}
}

func unknown(some []int, items []storage.Settled) {
	for _, i := range some {
		items[i] = storage.Settled{Status: storage.ItemUnknown}
	}
}
