package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

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
	var lanes sync.WaitGroup
	lanes.Go(func() {
		errs[1] = slowlane.Guard(func() error { return s.settleLane(ctx, p, ordered, true, &other) })
	})
	errs[0] = s.settleLane(ctx, p, plain, false, &out)
	lanes.Wait()
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
	unknown(failed, func(i int) { out.Items[i] = storage.Settled{Status: storage.ItemUnknown} })
	return out, nil
}

// settleLane settles some of the items: one statement for all of them, between the lock of
// their keys and the promotion where they have keys. Only items that it did not return cost
// more: one look for all of them, and the slow lane for those whose row was locked.
func (s *Store) settleLane(ctx context.Context, p storage.SettleParams, all []int, ordered bool, out *storage.SettleResult) error {
	items := p.Items
	left, err := s.settleOnce(ctx, s.sql.settle, items, all, ordered, p.LockWait, out)
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
		unknown(left, func(i int) { out.Items[i] = storage.Settled{Status: storage.ItemUnknown} })
	}
	held, err = s.heldAgain(ctx, held, p.LockWait, func(some []int) ([]int, error) {
		again := storage.SettleResult{Items: out.Items}
		left, err := s.settleOnce(ctx, s.sql.settle, items, some, ordered, p.LockWait, &again)
		if err != nil {
			return nil, err
		}
		out.Now, out.Ready = again.Now, unite(out.Ready, again.Ready...)
		if len(left) == 0 {
			return nil, nil
		}
		still, err := s.settleDiagnose(ctx, items, left, out)
		if err != nil {
			return left, nil //nolint:nilerr // The last look, after the slow lane, tells.
		}
		return still, nil
	})
	if err != nil {
		return err
	}
	if len(held) == 0 {
		return nil
	}
	if p.LockWait > 0 {
		unknown(held, func(i int) { out.Items[i] = storage.Settled{Status: storage.ItemHeld} })
		return nil
	}
	var lock sync.Mutex
	err = s.slow.Wait(ctx, held, func(ctx context.Context, i int) error {
		item := items[i : i+1]
		single := storage.SettleResult{Items: make([]storage.Settled, 1)}
		one := func(sql string) error {
			_, err := s.settleOnce(ctx, sql, item, []int{0}, ordered, 0, &single)
			return err
		}
		var err error
		if !ordered {
			err = one(s.sql.settleWait)
		} else {
			err = s.waitOutside(ctx, "settle", item[0].Ref, func() (answered bool, err error) {
				if err := one(s.sql.settle); err != nil || single.Items[0].Status != 0 {
					return true, err
				}
				held, err := s.settleDiagnose(ctx, item, []int{0}, &single)
				return len(held) == 0, err
			})
		}
		if err != nil {
			return err
		}
		lock.Lock()
		defer lock.Unlock()
		out.Items[i] = single.Items[0]
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
	unknown(held, func(i int) { out.Items[i] = storage.Settled{Status: storage.ItemUnknown} })
	return nil
}

// settleOnce runs a settle statement for some items and returns those that it did not
// answer: it applied the others, or had the lock of the row and saw that the lease is over.
func (s *Store) settleOnce(
	ctx context.Context, sql string, items []storage.Settlement, some []int, ordered bool, wait storage.LockWait, out *storage.SettleResult,
) (left []int, err error) {
	answered := make([]bool, len(some))
	completes := sql == s.sql.settle && plainCompletions(items, some)
	var steps []step
	switch refs := refsOf(items, some, ordered); {
	case completes && ordered:
		steps = []step{lockRefs(s.sql.lockKeys, refs, wait), s.completeStep(items, some, true, answered, out)}
	case completes:
		steps = []step{s.completeStep(items, some, false, answered, out)}
	case ordered:
		steps = s.withKeys(refs, wait, &out.Ready, s.settleStep(sql, items, some, answered, out))
	default:
		steps = []step{s.settleStep(sql, items, some, answered, out)}
	}
	if err = s.write(ctx, "settle", steps...); err != nil {
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

// refsOf names the messages of items, where that is asked for.
func refsOf(items []storage.Settlement, some []int, wanted bool) []storage.Ref {
	if !wanted {
		return nil
	}
	refs := make([]storage.Ref, 0, len(some))
	for _, i := range some {
		refs = append(refs, items[i].Ref)
	}
	return refs
}

// settleStep is the statement of settleOnce. It notes in answered which of the items it
// returned.
func (s *Store) settleStep(sql string, items []storage.Settlement, some []int, answered []bool, out *storage.SettleResult) step {
	n := len(some)
	var (
		ids       = make([]int32, n)
		positions = make([]int64, n)
		tokens    = make([][16]byte, n)
		actions   = make([]int16, n)
		delays    = make([]*int64, n)
		errs      = make([]*string, n)
		reasons   = make([]*string, n)
		results   = make([][]byte, n)
	)
	for k, i := range some {
		it := &items[i]
		ids[k], positions[k], tokens[k], actions[k] = it.Ref.QueueID, it.Ref.Position, it.Token, int16(it.Action)
		if it.Action == storage.ActionRelease || (it.Action == storage.ActionRetry && it.HasDelay) {
			us := max(it.Delay, 0).Microseconds()
			delays[k] = &us
		}
		errs[k], reasons[k], results[k] = nullText(it.Error), nullText(it.ReasonCode), it.Result
	}
	return step{
		sql: sql, args: []any{ids, positions, tokens, actions, delays, errs, reasons, results},
		scan: each(func() {
			clear(answered)
			for _, i := range some {
				out.Items[i] = storage.Settled{}
			}
		}, func(r pgx.Rows) error {
			var (
				ord                *int64
				outcome, reason    *int32
				settled, available *time.Time
			)
			if err := r.Scan(&out.Now, &ord, &outcome, &reason, &settled, &available); err != nil {
				return err
			}
			if ord == nil {
				return nil
			}
			answered[*ord-1] = true
			if outcome == nil {
				out.Items[some[*ord-1]] = storage.Settled{Status: storage.ItemLost, Cause: storage.LostLeaseExpired}
				return nil
			}
			out.Items[some[*ord-1]] = storage.Settled{
				Status:        storage.ItemApplied,
				Outcome:       storage.Outcome(*outcome),
				DeadReason:    storage.DeadReason(*reason),
				SettleTime:    utc(settled),
				AvailableTime: utc(available),
			}
			return nil
		}),
	}
}

// settleDiagnose answers items that were not applied, and returns those of which the
// claim seems to hold: their row was locked by somebody else.
func (s *Store) settleDiagnose(ctx context.Context, items []storage.Settlement, some []int, out *storage.SettleResult) (held []int, err error) {
	claims := make([]storage.HeldClaim, len(some))
	for k, i := range some {
		claims[k] = storage.HeldClaim{Ref: items[i].Ref, Token: items[i].Token}
	}
	facts, now, err := s.diagnose(ctx, "settle", claims)
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
		status, cause := f.verdict()
		item := storage.Settled{Status: status, Cause: cause}
		if rec := f.recorded(); status == storage.ItemSettled && rec != nil {
			item.Outcome = rec.outcome
			if rec.action == items[i].Action {
				item.Status = storage.ItemAlreadySettled
				item.DeadReason, item.SettleTime, item.AvailableTime = rec.deadReason, rec.settleTime, rec.availableTime
				item.FollowUps = rec.followUps
			}
		}
		out.Items[i] = item
	}
	return held, nil
}

func nullText(s string) *string {
	if s == "" {
		return nil
	}
	kept := s // not s itself, which would be put on the heap for the empty ones too
	return &kept
}

func unknown(items []int, mark func(int)) {
	for _, i := range items {
		mark(i)
	}
}
