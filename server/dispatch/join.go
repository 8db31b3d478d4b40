package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	// maxBytes bounds one statement, in bytes of payload.
	maxBytes = 4 << 20
	// waitItems and waitBytes bound what waits in one lane.
	waitItems = 20_000
	waitBytes = 64 << 20
	// lockWait is how long a joined statement waits for a key that another session holds: longer
	// than the statements of other lanes and servers hold one, and no time that its callers
	// would mind. briefWait is for the parts of one that has waited in vain.
	lockWait  = 200 * time.Millisecond
	briefWait = 20 * time.Millisecond
	// slowFlights bounds the calls of a kind that wait for a lock of another session beside
	// the lanes, followFlights the completions with follow-ups, which are a transaction each.
	slowFlights   = 4
	followFlights = 4
)

// JoinStore is what a Joiner needs of a storage.Store.
type JoinStore interface {
	Capabilities() storage.Capabilities
	Enqueue(ctx context.Context, p storage.EnqueueParams) (storage.EnqueueResult, error)
	Settle(ctx context.Context, p storage.SettleParams) (storage.SettleResult, error)
	Renew(ctx context.Context, p storage.RenewParams) (storage.RenewResult, error)
}

// JoinConfig of a Joiner. All fields but Off are needed.
type JoinConfig struct {
	Store JoinStore
	// Off sends each call by itself, as it comes.
	Off bool
	// StatementTimeout is the deadline of a statement.
	StatementTimeout time.Duration
	// Enqueued, Settled and Renewed are told of each statement, once and before its callers are
	// answered. Enqueued is told of what was inserted alone. They must not wait.
	Enqueued func(ms []storage.NewMessage, res storage.EnqueueResult)
	Settled  func(res storage.SettleResult, took time.Duration)
	Renewed  func(res storage.RenewResult)
	// Caught makes an error of a panic in the store.
	Caught  func(p any) error
	Metrics LaneMetrics
	// Now is the local clock.
	Now func() time.Time
}

// Joiner makes joined statements of concurrent calls that enqueue, settle or renew, in lanes: a
// queue on a relational database pays for each statement and commit, and not for each message.
// Messages with keys have lanes of their own, so that plain ones never pay for them.
type Joiner struct {
	cfg     JoinConfig
	caps    storage.Capabilities
	base    context.Context //nolint:containedctx // statements live with the server, not with a caller
	cancel  context.CancelFunc
	enqueue [4]*lane[*enqueueCall]
	settle  [3]*lane[*settleCall]
	renew   *lane[*renewCall]
	lanes   []anyLane
	held    heldKeys
}

// anyLane is a lane of any kind.
type anyLane interface {
	label() string
	waits() int
	close()
	wait()
}

func (l *lane[C]) label() string { return l.name }

// The lanes of a kind. A call goes as a whole by the dearest of its items, but for settlements,
// which are no one transaction.
const (
	plain = iota
	ordered
	keyed    // idempotency keys
	followed = keyed
	slowly   = keyed + 1 // those whose idempotency keys somebody held a moment ago
)

// patience is how a statement meets what somebody holds.
type patience struct {
	// wait bounds its waits, 0 as the storage does by itself.
	wait storage.LockWait
	// find: its calls were locked out a moment ago.
	find bool
	// crowd is how many callers wait for what somebody holds, each by himself.
	crowd int
}

// LaneNames lists the lanes, as the metrics name them.
func LaneNames() []string {
	return []string{
		"enqueue", "enqueue_ordered", "enqueue_keyed", "enqueue_slow",
		"settle", "settle_ordered", "settle_follow_ups", "settle_slow",
		"renew", "renew_slow",
	}
}

// NewJoiner makes a Joiner. Its statements end with base.
func NewJoiner(base context.Context, cfg JoinConfig) *Joiner {
	j := &Joiner{cfg: cfg, caps: cfg.Store.Capabilities(), held: heldKeys{now: cfg.Now}}
	j.base, j.cancel = context.WithCancel(base)
	slowEnqueue := addLane(j, "enqueue_slow", slowFlights, 1, nil, j.runEnqueue)
	j.enqueue[slowly] = slowEnqueue
	for i, name := range []string{"enqueue", "enqueue_ordered", "enqueue_keyed"} {
		j.enqueue[i] = addLane(j, name, 1, maxRows, slowEnqueue, j.runEnqueue)
	}
	slowSettle := addLane(j, "settle_slow", slowFlights, 1, nil, j.runSettle)
	j.settle[plain] = addLane(j, "settle", 1, maxRows, slowSettle, j.runSettle)
	j.settle[ordered] = addLane(j, "settle_ordered", 1, maxRows, slowSettle, j.runSettle)
	j.settle[followed] = addLane(j, "settle_follow_ups", followFlights, 1, slowSettle, j.runSettle)
	slowRenew := addLane(j, "renew_slow", slowFlights, 1, nil, j.runRenew)
	j.renew = addLane(j, "renew", 1, maxRows, slowRenew, j.runRenew)
	return j
}

// addLane adds a lane whose statements hold up to rows items. One without a slow lane is a slow
// lane.
func addLane[C any](
	j *Joiner, name string, flights, rows int, slow *lane[C],
	run func(ctx context.Context, calls []C, p patience) ([]verdict, error),
) *lane[C] {
	var l *lane[C]
	l = newLane(j.base, laneConfig[C]{
		name: name, flights: flights, slow: slow,
		statement: Size{Items: rows, Bytes: maxBytes}, waiting: Size{Items: waitItems, Bytes: waitBytes},
		timeout: j.cfg.StatementTimeout, now: j.cfg.Now, caught: j.cfg.Caught, metrics: j.cfg.Metrics,
		run: func(ctx context.Context, calls []C, brief bool) ([]verdict, error) {
			switch {
			case slow == nil:
				return run(ctx, calls, patience{crowd: l.callers()})
			case brief:
				return run(ctx, calls, patience{wait: briefWait, find: true})
			}
			return run(ctx, calls, patience{wait: lockWait})
		},
	})
	j.lanes = append(j.lanes, l)
	return l
}

// Waiting tells how many items wait for a statement in each lane.
func (j *Joiner) Waiting(each func(lane string, items int)) {
	for _, l := range j.lanes {
		each(l.label(), l.waits())
	}
}

// Close answers everybody who waits, ends the statements that run, and waits for them.
func (j *Joiner) Close() {
	for _, l := range j.lanes {
		l.close()
	}
	j.cancel()
	for _, l := range j.lanes {
		l.wait()
	}
}

// direct runs a call by itself.
func (j *Joiner) direct(ctx context.Context, run func(ctx context.Context) error) error {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), j.cfg.StatementTimeout)
	defer cancel()
	stop := context.AfterFunc(j.base, cancel) //nolint:contextcheck // the joiner's end is not the caller's
	defer stop()
	return run(call)
}

// through takes a call through a lane, or past it.
func through[C any](ctx context.Context, j *Joiner, l *lane[C], key Share, size Size, call C, run func(context.Context, []C, patience) ([]verdict, error)) error {
	if j.cfg.Off {
		return j.direct(ctx, func(ctx context.Context) error {
			_, err := run(ctx, []C{call}, patience{})
			return err
		})
	}
	return l.do(ctx, key, size, call)
}

// enqueueCall is one Enqueue or BatchEnqueue, which is atomic.
type enqueueCall struct {
	ms  []storage.NewMessage
	res storage.EnqueueResult
}

// Enqueue is storage.Store.Enqueue, joined with others. The messages are all inserted, or none.
func (j *Joiner) Enqueue(ctx context.Context, conn any, ms []storage.NewMessage) (storage.EnqueueResult, error) {
	call := &enqueueCall{ms: ms}
	key, size, way := Share{Conn: conn}, Size{Items: len(ms)}, plain
	for i := range ms {
		m := &ms[i]
		key.Queue = m.QueueID
		size.Bytes += m.WireBytes
		switch {
		case m.IdempotencyKey != "":
			way = keyed
		case m.OrderingKey != "" && way == plain:
			way = ordered
		}
	}
	if way == keyed && j.held.any(ms) {
		way = slowly
	}
	if err := through(ctx, j, j.enqueue[way], key, size, call, j.runEnqueue); err != nil {
		return storage.EnqueueResult{}, err
	}
	return call.res, nil
}

func (j *Joiner) runEnqueue(ctx context.Context, calls []*enqueueCall, p patience) ([]verdict, error) {
	ms := calls[0].ms
	if len(calls) > 1 {
		n := 0
		for _, c := range calls {
			n += len(c.ms)
		}
		ms = make([]storage.NewMessage, 0, n)
		for _, c := range calls {
			ms = append(ms, c.ms...)
		}
	}
	wait := p.wait
	if wait == 0 {
		wait = heldUpTo(p.crowd)
	}
	res, err := j.cfg.Store.Enqueue(ctx, storage.EnqueueParams{Messages: ms, LockWait: wait, FindHeld: p.find})
	if err != nil {
		if len(ms) == 1 && errors.Is(err, storage.ErrLocked) {
			j.held.note(&ms[0]) // it is the one
		}
		return nil, err
	}
	var locked []verdict
	reused := false
	from := 0
	for n, c := range calls {
		to := from + len(c.ms)
		c.res = storage.EnqueueResult{Items: res.Items[from:to:to], Now: res.Now}
		from = to
		for i := range c.res.Items {
			switch c.res.Items[i].Status {
			case storage.EnqueueKeyReused:
				reused = true
			case storage.EnqueueHeld:
				j.held.note(&c.ms[i])
				locked = heldUp(locked, len(calls), n)
			default:
			}
		}
	}
	if locked != nil {
		for n := range locked {
			if locked[n] == done {
				locked[n] = again // for it is inserted nothing yet
			}
		}
		return locked, nil
	}
	j.held.had(ms)
	if !reused {
		j.cfg.Enqueued(ms, res)
		return nil, nil
	}
	return refuse(calls), nil
}

// refuse tells what becomes of calls of which some reuse an idempotency key, so that nothing was
// inserted (E3). The answer to one that does is final, unless the key was that of a call before
// it in the statement, which has not been inserted either: that one goes first.
func refuse(calls []*enqueueCall) []verdict {
	type name struct {
		queue int32
		key   string
	}
	first := map[name]int{}
	out := make([]verdict, len(calls))
	for i, c := range calls {
		out[i] = again
		for k := range c.ms {
			m := &c.ms[k]
			if m.IdempotencyKey == "" {
				continue
			}
			n := name{m.QueueID, m.IdempotencyKey}
			owner, taken := first[n]
			if !taken {
				owner = i
				first[n] = i
			}
			switch {
			case c.res.Items[k].Status != storage.EnqueueKeyReused:
			case owner == i:
				out[i] = done
			case out[i] == again:
				out[i] = after
			}
		}
	}
	return out
}

// settleCall is a call that settles, or the part of one that goes through one lane.
type settleCall struct {
	items []storage.Settlement
	out   []storage.Settled
	now   time.Time
}

// open tells whether an item waits for its answer yet.
func open(s storage.ItemStatus) bool { return s == 0 || s == storage.ItemHeld }

// Settle is storage.Store.Settle, joined with others. Now is that of the last statement.
func (j *Joiner) Settle(ctx context.Context, conn any, items []storage.Settlement) ([]storage.Settled, time.Time, error) {
	if j.cfg.Off {
		return j.settlePart(ctx, conn, plain, items) // the store keeps the kinds apart itself
	}
	var parts [3][]int
	for i := range items {
		way := plain
		switch {
		case len(items[i].FollowUps) > 0:
			way = followed
		case j.caps.Keyed(items[i].Ref):
			way = ordered
		}
		parts[way] = append(parts[way], i)
	}
	for way, part := range parts {
		if len(part) == len(items) {
			return j.settlePart(ctx, conn, way, items)
		}
	}
	return j.settleParts(ctx, conn, items, parts)
}

// settleParts settles items of different kinds in their lanes beside each other.
func (j *Joiner) settleParts(ctx context.Context, conn any, items []storage.Settlement, parts [3][]int) ([]storage.Settled, time.Time, error) {
	type result struct {
		part []int
		out  []storage.Settled
		now  time.Time
		err  error
	}
	results := make(chan result, len(parts))
	n := 0
	for way, part := range parts {
		if len(part) == 0 {
			continue
		}
		n++
		some := make([]storage.Settlement, len(part))
		for k, i := range part {
			some[k] = items[i]
		}
		go func() {
			r := result{part: part}
			defer func() {
				if p := recover(); p != nil {
					r.err = j.cfg.Caught(p)
				}
				results <- r
			}()
			r.out, r.now, r.err = j.settlePart(ctx, conn, way, some)
		}()
	}
	var (
		out    = make([]storage.Settled, len(items))
		now    time.Time
		failed error
		ok     bool
	)
	for range n {
		r := <-results
		for k, i := range r.part {
			out[i] = storage.Settled{Status: storage.ItemUnknown}
			if r.err == nil {
				out[i] = r.out[k]
			}
		}
		if r.now.After(now) {
			now = r.now
		}
		ok = ok || r.err == nil
		if r.err != nil && (failed == nil || errors.Is(r.err, storage.ErrOutcomeUnknown)) {
			failed = r.err
		}
	}
	if failed != nil && (!ok || errors.Is(failed, storage.ErrOutcomeUnknown)) {
		return nil, time.Time{}, failed
	}
	// One part is through, so the call has not failed; of the others nothing happened.
	return out, now, nil
}

func (j *Joiner) settlePart(ctx context.Context, conn any, way int, items []storage.Settlement) ([]storage.Settled, time.Time, error) {
	call := &settleCall{items: items, out: make([]storage.Settled, len(items))}
	size := Size{Items: len(items)}
	for i := range items {
		it := &items[i]
		size.Bytes += int64(len(it.Result) + len(it.Error))
		for k := range it.FollowUps {
			size.Items++
			size.Bytes += it.FollowUps[k].WireBytes
		}
	}
	err := through(ctx, j, j.settle[way], Share{Queue: items[0].Ref.QueueID, Conn: conn}, size, call, j.runSettle)
	if err != nil && !some(call.out, func(s *storage.Settled) bool { return !open(s.Status) }) {
		return nil, time.Time{}, err
	}
	if errors.Is(err, storage.ErrOutcomeUnknown) {
		return nil, time.Time{}, err // which a repeat of the whole call finds out
	}
	// Where some items are settled the call has not failed; what the others are is unknown.
	for i := range call.out {
		if open(call.out[i].Status) {
			call.out[i] = storage.Settled{Status: storage.ItemUnknown}
		}
	}
	return call.out, call.now, nil
}

func some[T any](all []T, is func(*T) bool) bool {
	for i := range all {
		if is(&all[i]) {
			return true
		}
	}
	return false
}

func (j *Joiner) runSettle(ctx context.Context, calls []*settleCall, p patience) ([]verdict, error) {
	items := joinOpen(calls, func(c *settleCall) ([]storage.Settlement, func(i int) bool) {
		return c.items, func(i int) bool { return open(c.out[i].Status) }
	})
	began := j.cfg.Now()
	res, err := j.cfg.Store.Settle(ctx, storage.SettleParams{Items: items, LockWait: p.wait})
	if err != nil {
		return nil, err
	}
	j.cfg.Settled(res, j.cfg.Now().Sub(began))
	return deal(calls, res.Items, func(c *settleCall) ([]storage.Settled, *time.Time) { return c.out, &c.now }, res.Now,
		func(s *storage.Settled) storage.ItemStatus { return s.Status }), nil
}

// joinOpen lists the items of calls that have no answer yet.
func joinOpen[C, T any](calls []C, of func(C) ([]T, func(int) bool)) []T {
	n := 0
	for _, c := range calls {
		items, _ := of(c)
		n += len(items)
	}
	all := make([]T, 0, n)
	for _, c := range calls {
		items, open := of(c)
		for i := range items {
			if open(i) {
				all = append(all, items[i])
			}
		}
	}
	return all
}

// deal gives the calls the answers to what joinOpen listed, in its order. It says which of them
// have an item that somebody holds.
func deal[C, A any](calls []C, answers []A, of func(C) ([]A, *time.Time), now time.Time, status func(*A) storage.ItemStatus) []verdict {
	var held []verdict
	for n, c := range calls {
		out, at := of(c)
		*at = now
		for i := range out {
			if !open(status(&out[i])) {
				continue
			}
			out[i], answers = answers[0], answers[1:]
			if status(&out[i]) == storage.ItemHeld {
				held = heldUp(held, len(calls), n)
			}
		}
	}
	return held
}

// heldUp notes that call i of n has an item that somebody holds.
func heldUp(verdicts []verdict, n, i int) []verdict {
	if verdicts == nil {
		verdicts = make([]verdict, n)
	}
	verdicts[i] = alone
	return verdicts
}

// renewCall is a call that renews.
type renewCall struct {
	items []storage.Renewal
	out   []storage.Renewed
	now   time.Time
}

// Renew is storage.Store.Renew, joined with others.
func (j *Joiner) Renew(ctx context.Context, conn any, items []storage.Renewal) (storage.RenewResult, error) {
	call := &renewCall{items: items, out: make([]storage.Renewed, len(items))}
	err := through(ctx, j, j.renew, Share{Queue: items[0].Ref.QueueID, Conn: conn}, Size{Items: len(items)}, call, j.runRenew)
	if err != nil && (errors.Is(err, storage.ErrOutcomeUnknown) || !some(call.out, func(r *storage.Renewed) bool { return !open(r.Status) })) {
		return storage.RenewResult{}, err
	}
	for i := range call.out {
		if open(call.out[i].Status) {
			call.out[i] = storage.Renewed{Status: storage.ItemUnknown}
		}
	}
	return storage.RenewResult{Items: call.out, Now: call.now}, nil
}

func (j *Joiner) runRenew(ctx context.Context, calls []*renewCall, p patience) ([]verdict, error) {
	items := joinOpen(calls, func(c *renewCall) ([]storage.Renewal, func(i int) bool) {
		return c.items, func(i int) bool { return open(c.out[i].Status) }
	})
	res, err := j.cfg.Store.Renew(ctx, storage.RenewParams{Items: items, LockWait: p.wait})
	if err != nil {
		return nil, err
	}
	j.cfg.Renewed(res)
	return deal(calls, res.Items, func(c *renewCall) ([]storage.Renewed, *time.Time) { return c.out, &c.now }, res.Now,
		func(r *storage.Renewed) storage.ItemStatus { return r.Status }), nil
}
