package storagetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// heldRules check S13, and E6: another session holds the row, or the key, that a
// write needs. What waited past the lease end is refused; what got the lock in time
// is applied; what did not get it is unknown and never happens later; and no
// neighbour in the same statement waits with it.
func heldRules() []rule {
	var rules []rule
	for _, w := range heldWrites() {
		for _, how := range []struct {
			name string
			kind HoldKind
		}{{"only_locked", HoldLock}, {"really_updated", HoldUpdate}} {
			for _, joined := range []bool{false, true} {
				shape := "_single"
				if joined {
					shape = "_joined"
				}
				h := holding{write: w, kind: how.kind, joined: joined}
				rules = append(rules,
					rule{
						name:   w.rules + "_" + w.name + shape + "/a_row_" + how.name + "_across_the_lease_end_is_refused",
						clocks: bothClocks, run: h.acrossLeaseEnd,
					},
					rule{
						name:   w.rules + "_" + w.name + shape + "/a_row_" + how.name + "_and_freed_before_the_lease_end_is_applied",
						clocks: settable, run: h.freedInTime,
					})
			}
		}
		for _, arrives := range []string{"before", "after"} {
			h := holding{write: w, kind: HoldExtend, joined: arrives == "after", late: arrives == "after"}
			rules = append(rules, rule{
				name:   w.rules + "_S7_" + w.name + "/a_row_that_is_being_renewed_across_its_lease_end_is_not_lost_for_a_write_that_came_" + arrives + "_it",
				clocks: settable, run: h.extended,
			})
		}
		if w.name != "renew" && w.name != "complete" {
			continue // the four settlements wait in the same way, and each wait is long
		}
		h := holding{write: w, kind: HoldUpdate, joined: true}
		rules = append(rules, rule{
			name:   w.rules + "_" + w.name + "_joined/a_row_held_the_whole_wait_is_unknown_and_nothing_happens_later",
			clocks: settable, run: h.wholeWait, skip: needsRowLocks,
		})
	}
	return append(rules,
		rule{name: "C3_a_claim_does_not_wait_for_a_held_row", clocks: bothClocks, run: heldClaim, skip: needsRowLocks},
		rule{name: "C3_an_expired_row_that_is_held_is_claimed_when_it_is_freed", clocks: settable, run: heldExpired},
		rule{name: "E6_the_holder_of_the_key_rolls_back_so_the_second_inserts", clocks: bothClocks, run: heldKeyRolledBack, skip: needsHeldKeys},
		rule{name: "E6_the_holder_of_the_key_commits_so_the_second_is_a_duplicate", clocks: bothClocks, run: heldKeyCommitted, skip: needsHeldKeys},
		rule{name: "E6_a_key_held_the_whole_wait_is_unavailable_and_no_neighbour_waits", clocks: bothClocks, run: heldKey, skip: needsHeldKeys},
		rule{name: "E6_an_enqueue_that_waits_for_a_held_key_keeps_its_ordering_key_from_nobody", clocks: bothClocks, run: heldKeyEnqueue, skip: needsHeldKeys},
		rule{name: "E6_S10_a_completion_that_waits_for_the_held_key_of_a_follow_up_keeps_its_ordering_key_from_nobody", clocks: bothClocks, run: heldKeyFollowUp, skip: needsHeldKeys},
	)
}

func needsHeldKeys(in *Instance, _ storage.Capabilities) string {
	if in.HoldIdempotencyKey == nil {
		return "Instance.HoldIdempotencyKey is nil: one writer at a time makes the case impossible"
	}
	return ""
}

// heldWrite is a write of claims in batch form.
type heldWrite struct {
	name, rules string
	do          func(ctx context.Context, s storage.Store, cs []storage.Claimed, wait storage.LockWait) ([]heldAnswer, error)
}

type heldAnswer struct {
	status storage.ItemStatus
	cause  storage.LostCause
}

func heldWrites() []heldWrite {
	ws := []heldWrite{{
		name: "renew", rules: "S13_R2",
		do: func(ctx context.Context, s storage.Store, cs []storage.Claimed, wait storage.LockWait) ([]heldAnswer, error) {
			p := storage.RenewParams{LockWait: wait}
			for _, c := range cs {
				p.Items = append(p.Items, renewal(c, 2*time.Hour))
			}
			res, err := s.Renew(ctx, p)
			var got []heldAnswer
			for _, item := range res.Items {
				got = append(got, heldAnswer{item.Status, item.Cause})
			}
			return got, err
		},
	}}
	for _, a := range actions {
		ws = append(ws, heldWrite{
			name: a.name, rules: "S13",
			do: func(ctx context.Context, s storage.Store, cs []storage.Claimed, wait storage.LockWait) ([]heldAnswer, error) {
				p := storage.SettleParams{LockWait: wait}
				for _, c := range cs {
					p.Items = append(p.Items, settlement(c, a.action))
				}
				res, err := s.Settle(ctx, p)
				var got []heldAnswer
				for _, item := range res.Items {
					got = append(got, heldAnswer{item.Status, item.Cause})
				}
				return got, err
			},
		})
	}
	return append(ws, heldWrite{
		name: "complete_with_follow_ups", rules: "S13_S10",
		do: func(ctx context.Context, s storage.Store, cs []storage.Claimed, wait storage.LockWait) ([]heldAnswer, error) {
			p := storage.SettleParams{LockWait: wait}
			for _, c := range cs {
				// Hidden, so that it stands in nobody's way.
				m := storage.NewMessage{QueueID: c.Message.Ref.QueueID, Payload: []byte("follow-up"), WireBytes: 100, Delay: 100 * time.Hour}
				p.Items = append(p.Items, completion(c.Message.Ref, c.Token, m))
			}
			res, err := s.Settle(ctx, p)
			var got []heldAnswer
			for _, item := range res.Items {
				if (item.Status == storage.ItemApplied) != (len(item.FollowUps) == 1) {
					return nil, fmt.Errorf("status %d with %d follow-ups", item.Status, len(item.FollowUps))
				}
				got = append(got, heldAnswer{item.Status, item.Cause})
			}
			return got, err
		},
	})
}

// holding is one of the cases: a write of a held row, alone or joined with three
// neighbours.
type holding struct {
	write  heldWrite
	kind   HoldKind
	joined bool
	// late starts the write after the lease end only.
	late bool
}

// start claims the messages, holds the second row, starts the write through another
// store and returns when it waits.
func (h holding) start(t *testing.T, e *env, d time.Duration) *waiting {
	t.Helper()
	w := &waiting{e: e, reader: e.other, done: make(chan error, 1)}
	if h.joined {
		e.many(t, 3)
		w.neighbours = e.claimAs(t, "neighbour", 3, time.Hour)
		require.Len(t, w.neighbours, 3)
	}
	w.ref = e.one(t)
	// The lease is the last thing before the hold: on the real clock it is running out.
	w.held = e.claimOneAs(t, "holder", d)
	w.release = e.in.Hold(t, w.ref, h.kind)
	t.Cleanup(func() { w.free() })
	w.row = e.liveRow(t, w.ref)
	if h.late {
		e.advanceTo(t, w.held.Message.LeaseEnd)
	}
	cs := []storage.Claimed{w.held}
	if h.joined {
		cs = []storage.Claimed{w.neighbours[0], w.held, w.neighbours[1], w.neighbours[2]}
		w.at = 1
	}
	go func() {
		var err error
		w.got, err = h.write.do(t.Context(), e.store, cs, 0)
		w.done <- err
	}()
	w.untilWaiting(t)
	return w
}

type waiting struct {
	e          *env
	ref        storage.Ref
	held       storage.Claimed
	neighbours []storage.Claimed
	at         int // index of the held item
	row        map[string]string
	reader     storage.Store
	release    func()
	done       chan error
	got        []heldAnswer
}

// free ends the hold, once.
func (w *waiting) free() {
	if w.release != nil {
		w.release()
		w.release = nil
	}
}

// untilWaiting gives the call the time to reach the lock: until the database says
// that it waits, or a moment where it cannot say. A call that has answered waits for
// nothing any more.
func (w *waiting) untilWaiting(t *testing.T) {
	t.Helper()
	moment := 150 * time.Millisecond
	if w.e.in.Waiting != nil {
		moment = 3 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), moment)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if len(w.done) > 0 || w.e.in.Waiting != nil && w.e.in.Waiting(t) {
				return
			}
		}
	}
}

// neighboursApplied requires that the neighbours are done while the row is held.
func (w *waiting) neighboursApplied(t *testing.T) {
	t.Helper()
	if !w.e.caps.RowLocks {
		return
	}
	for _, c := range w.neighbours {
		eventually(t, "a neighbour is served while the other row is held", func() bool {
			m, err := w.reader.GetMessage(t.Context(), c.Message.Ref, false)
			require.NoError(t, err)
			return m.State != storage.StateProcessing || m.LeaseEnd.After(c.Message.LeaseEnd)
		})
	}
	if !w.e.settable() {
		// The lease may have run out before the write came, which is told without a wait.
		return
	}
	select {
	case err := <-w.done:
		require.Failf(t, "too early", "the call ended while the row was held: %v, %v", w.got, err)
	default:
	}
}

// answer waits for the call and checks the neighbours; it returns the answer of the
// held item.
func (w *waiting) answer(t *testing.T) heldAnswer {
	t.Helper()
	err := receive(t, w.done, "the answer of the write")
	require.NoError(t, err)
	require.Len(t, w.got, 1+len(w.neighbours))
	for i, got := range w.got {
		if i != w.at {
			require.Equal(t, storage.ItemApplied, got.status, "neighbour %d", i)
		}
	}
	return w.got[w.at]
}

func (h holding) acrossLeaseEnd(t *testing.T, e *env) {
	d := 10 * time.Second
	if !e.settable() {
		d = 400 * time.Millisecond
	}
	w := h.start(t, e, d)
	w.neighboursApplied(t)
	e.through(w.reader).waitClock(t, w.held.Message.LeaseEnd)
	w.free()
	got := w.answer(t)
	require.Equal(t, storage.ItemLost, got.status, "it waited past its lease end")
	require.Equal(t, storage.LostLeaseExpired, got.cause)
	require.Equal(t, w.row, e.liveRow(t, w.ref), "the row is as before")
	next := e.claimOneAs(t, "next", time.Hour)
	require.Equal(t, w.ref, next.Message.Ref)
	require.EqualValues(t, 2, next.Message.Attempt)
	e.complete(t, next)
}

func (h holding) freedInTime(t *testing.T, e *env) {
	w := h.start(t, e, 10*time.Second)
	w.neighboursApplied(t)
	e.advance(t, 10*time.Second-e.tick)
	w.free()
	got := w.answer(t)
	require.Equal(t, storage.ItemApplied, got.status, "the lock came before the lease end")
	m := e.get(t, w.ref)
	if h.write.name == "renew" {
		// R1: computed after the lock.
		sameTime(t, e.now.Add(2*time.Hour), m.LeaseEnd, "the new lease end")
		e.complete(t, w.held)
		return
	}
	require.NotEqual(t, storage.StateProcessing, m.State)
}

// extended has another session renew the claim while the lease ends. Whoever looks
// meanwhile sees a lease that is over, and must not say so before he has the lock:
// the renewal was in time.
func (h holding) extended(t *testing.T, e *env) {
	w := h.start(t, e, 10*time.Second)
	w.neighboursApplied(t)
	e.advanceTo(t, w.held.Message.LeaseEnd.Add(time.Second))
	w.free()
	got := w.answer(t)
	require.Equal(t, storage.ItemApplied, got.status, "the lock came, and with it the longer lease")
	if h.write.name == "renew" {
		e.complete(t, w.held)
		return
	}
	require.NotEqual(t, storage.StateProcessing, e.get(t, w.ref).State)
}

func (h holding) wholeWait(t *testing.T, e *env) {
	w := h.start(t, e, time.Hour)
	w.neighboursApplied(t)
	got := w.answer(t)
	require.Equal(t, storage.ItemUnknown, got.status)
	require.Equal(t, w.row, e.liveRow(t, w.ref), "nothing changed")
	w.free()
	// The other session is gone and nothing of the call is left to happen: the row
	// stays as it is until somebody asks again.
	require.NoError(t, w.reader.Ready(t.Context()))
	require.Equal(t, w.row, e.liveRow(t, w.ref), "nothing changes later")
	again, err := h.write.do(t.Context(), e.store, []storage.Claimed{w.held}, 0)
	require.NoError(t, err)
	require.Equal(t, storage.ItemApplied, again[0].status, "asked again, it is applied")
}

func heldClaim(t *testing.T, e *env) {
	refs := e.many(t, 3)
	release := e.in.Hold(t, refs[0], HoldLock)
	defer func() { release() }()
	require.Equal(t, refs[1:], refsOf(e.claimN(t, 10)), "it takes what is free")
	require.Empty(t, e.claimN(t, 10))
	release()
	release = func() {}
	require.Equal(t, refs[:1], refsOf(e.claimN(t, 10)))
}

func heldExpired(t *testing.T, e *env) {
	ref := e.one(t)
	e.claimOneAs(t, "A", 10*time.Second)
	e.advance(t, 10*time.Second)
	release := e.in.Hold(t, ref, HoldUpdate)
	if e.caps.RowLocks {
		require.Empty(t, e.claimN(t, 10))
	}
	release()
	c := e.claimOne(t)
	require.Equal(t, ref, c.Message.Ref)
	require.EqualValues(t, 2, c.Message.Attempt)
}

// enqueueLater enqueues in a goroutine.
func (e *env) enqueueLater(t *testing.T, m storage.NewMessage) (items *[]storage.Enqueued, done chan error) {
	t.Helper()
	items, done = new([]storage.Enqueued), make(chan error, 1)
	go func() {
		res, err := e.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{m}})
		*items = res.Items
		done <- err
	}()
	w := &waiting{e: e, done: done}
	w.untilWaiting(t)
	return items, done
}

func heldKeyRolledBack(t *testing.T, e *env) {
	end := e.in.HoldIdempotencyKey(t, e.queue.ID, "key")
	items, done := e.enqueueLater(t, e.message(keyed("key", "content")))
	end(false)
	require.NoError(t, receive(t, done, "the answer of the enqueue"))
	require.Equal(t, storage.EnqueueInserted, (*items)[0].Status, "duplicate = false")
	require.Equal(t, (*items)[0].Ref, e.claimOne(t).Message.Ref)
}

func heldKeyCommitted(t *testing.T, e *env) {
	end := e.in.HoldIdempotencyKey(t, e.queue.ID, "key")
	items, done := e.enqueueLater(t, e.message(keyed("key", "content")))
	end(true)
	require.NoError(t, receive(t, done, "the answer of the enqueue"))
	// The other session inserted a key with some content; that it is known is the rule.
	require.NotEqual(t, storage.EnqueueInserted, (*items)[0].Status)
	require.Subset(t, []storage.Ref{(*items)[0].Ref}, refsOf(e.claimN(t, 10)), "nothing was inserted beside it")
}

func heldKey(t *testing.T, e *env) {
	end := e.in.HoldIdempotencyKey(t, e.queue.ID, "key")
	ended := false
	defer func() {
		if !ended {
			end(false)
		}
	}()
	_, done := e.enqueueLater(t, e.message(keyed("key", "content")))
	// Neighbours, with another key and without one, are served while it waits.
	plain := e.one(t)
	other := e.one(t, keyed("another key", "content"))
	err := receive(t, done, "the answer of the enqueue")
	require.ErrorIs(t, err, storage.ErrUnavailable, "a bounded wait")
	require.Equal(t, []storage.Ref{plain, other}, refsOf(e.claimN(t, 10)))
	end(false)
	ended = true
	require.Equal(t, storage.EnqueueInserted, e.enqueueResult(t, e.message(keyed("key", "content")))[0].Status)
}

// heldKeyEnqueue has an enqueue into an ordering key wait for an idempotency key that a stranger
// holds, while others enqueue into that ordering key, claim and complete.
func heldKeyEnqueue(t *testing.T, e *env) {
	m := e.message(keyed("key", "content"), ordered("order"))
	neighbour := e.through(e.other)
	e.keepsNobody(t, func() error {
		_, err := e.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{m}})
		return err
	}, func() {
		neighbour.one(t, ordered("order"))
		neighbour.complete(t, neighbour.claimOne(t))
	})
	require.Equal(t, storage.EnqueueInserted, e.enqueueResult(t, m)[0].Status)
}

// heldKeyFollowUp is heldKeyEnqueue with the completion of a message that has the ordering key.
func heldKeyFollowUp(t *testing.T, e *env) {
	e.one(t, ordered("order"))
	c := e.claimOneAs(t, "worker", time.Hour)
	it := completion(c.Message.Ref, c.Token, e.message(keyed("key", "content")))
	neighbour := e.through(e.other)
	e.keepsNobody(t, func() error {
		_, err := e.store.Settle(t.Context(), storage.SettleParams{Items: []storage.Settlement{it}})
		return err
	}, func() { neighbour.one(t, ordered("order")) })
	require.Equal(t, storage.ItemApplied, e.settle(t, it)[0].Status)
}

// keepsNobody runs a write that needs the idempotency key "key" while a stranger has it, and over
// and over what others do through another store until the write has waited in vain: none of
// that may wait for anything like as long.
func (e *env) keepsNobody(t *testing.T, write func() error, neighbour func()) {
	t.Helper()
	end := e.in.HoldIdempotencyKey(t, e.queue.ID, "key")
	defer func() { end(false) }()
	neighbour()
	done := make(chan error, 1)
	start := time.Now()
	go func() { done <- write() }()
	var longest time.Duration
	for len(done) == 0 {
		before := time.Now()
		neighbour()
		longest = max(longest, time.Since(before))
	}
	waited := time.Since(start)
	require.ErrorIs(t, receive(t, done, "the answer of the write"), storage.ErrUnavailable, "a bounded wait")
	require.Less(t, longest, waited/2, "a neighbour waited with it")
}
