package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// The bounds of one transaction of the writer. What is over ends the transaction after the
// call that went over, so one call alone may be larger; the next transaction begins at once.
const (
	// groupTime bounds how long calls are taken in, and so how long the first one waits for
	// the COMMIT, and another process for the write lock.
	groupTime = 10 * time.Millisecond
	// groupCalls bounds how many callers share the outcome of one COMMIT.
	groupCalls = 1000
)

// writing is a function that runs in a transaction of the writer, under the write lock.
//
// It gets a ctx that does not end, for the many short statements of a batch: watching a
// ctx costs the driver a goroutine a statement. A statement that may take long, or a
// loop over many, looks at the ctx of the call itself.
type writing func(quiet context.Context, c *session) (verdict, error)

// writer is the one that writes in this process. It joins the calls that wait for it into
// one transaction with one COMMIT, whatever they do: while it commits, what arrives forms the
// next transaction, and an idle writer starts at once. Each call is all or nothing by itself,
// by a savepoint, and is answered when the COMMIT is durable (E10).
//
// Its goroutine lives while calls wait, and nobody else uses its session.
type writer struct {
	s *Store
	// groupTime and groupCalls are the bounds of a transaction; a test sets others.
	groupTime  time.Duration
	groupCalls int

	mu      sync.Mutex
	idle    sync.Cond // that running has become false
	queue   []*call   // in the order of arrival
	arrived uint64    // how many calls ever came
	running bool

	session   *session
	neighbour neighbour
}

// stage says how far the writer is with a call.
type stage int

const (
	waiting stage = iota
	// left: its caller did not wait for its turn.
	left
	running
	// ran: it shares the outcome of the COMMIT that follows.
	ran
)

// call is one write.
type call struct {
	ctx   context.Context //nolint:containedctx // of the caller, who waits outside
	fn    writing
	alone bool
	// number is its place in the order of arrival.
	number uint64
	// stage and ended belong to the mutex of the writer. ended is made by a caller whose ctx
	// ends while fn runs, and is closed when fn is done with his variables.
	stage stage
	ended chan struct{}
	// answer gets the one answer.
	answer chan error
	// verdict and err are what fn said.
	verdict verdict
	err     error
}

func newWriter(s *Store) *writer {
	w := &writer{s: s, groupTime: groupTime, groupCalls: groupCalls}
	w.idle.L = &w.mu
	return w
}

// do lets the writer run k, and waits for its answer. A caller whose ctx ends before k has
// its turn leaves, and nothing has happened; while k runs he waits for its end, which sees the
// ctx itself; and after that k shares the outcome of its neighbours, which he does not wait
// for: it is unknown to him (D8).
func (w *writer) do(k *call) error {
	w.mu.Lock()
	w.arrived++
	k.number = w.arrived
	w.queue = append(w.queue, k)
	if !w.running {
		w.running = true
		go w.run()
	}
	w.mu.Unlock()
	select {
	case err := <-k.answer:
		return err
	case <-k.ctx.Done():
		return w.leave(k)
	}
}

func (w *writer) leave(k *call) error {
	w.mu.Lock()
	if k.stage == waiting {
		k.stage = left
		w.mu.Unlock()
		return classify(k.ctx.Err())
	}
	var ended chan struct{}
	if k.stage == running {
		ended = make(chan struct{})
		k.ended = ended
	}
	w.mu.Unlock()
	if ended != nil {
		<-ended
	}
	select {
	case err := <-k.answer:
		return err
	default:
		return fmt.Errorf("%w: commit: %w", storage.ErrOutcomeUnknown, k.ctx.Err())
	}
}

// run writes as long as somebody waits.
func (w *writer) run() {
	for first := true; ; first = false {
		w.mu.Lock()
		w.drop()
		if len(w.queue) == 0 {
			w.running = false
			w.idle.Broadcast()
			w.mu.Unlock()
			return
		}
		last := w.arrived
		w.mu.Unlock()
		if !first {
			w.neighbour.yield()
		}
		w.transact(last)
	}
}

// drop removes those from the head of the queue who have left.
func (w *writer) drop() {
	n := 0
	for n < len(w.queue) && w.queue[n].stage == left {
		n++
	}
	w.queue = slices.Delete(w.queue, 0, n)
}

// awaited tells whether anybody waits still.
func (w *writer) awaited() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop()
	return len(w.queue) > 0
}

// stop waits until the writer is idle, and closes its session. Nobody may call do any more.
func (w *writer) stop() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.running {
		w.idle.Wait()
	}
	if w.session == nil {
		return nil
	}
	return w.session.close()
}

// transact runs one transaction. Where it cannot begin, those who had come before it tried
// are told so; last is the number of the last of them.
func (w *writer) transact(last uint64) {
	ctx := context.Background()
	if err := w.begin(ctx); err != nil {
		w.discard(ctx)
		w.refuse(last, err)
		return
	}
	g := group{w: w, c: w.session, began: time.Now()} //nolint:forbidigo // bounds the transaction
	for k := g.next(); k != nil; k = g.next() {
		g.run(ctx, k)
	}
	g.end(ctx)
	w.discard(ctx)
}

// begin takes the write lock on the session of the writer, opening it where there is none.
func (w *writer) begin(ctx context.Context) error {
	if w.session == nil {
		c, err := w.s.openWriter(ctx)
		if err != nil {
			return err
		}
		w.session = c
	}
	err := w.s.begin(ctx, w.session, w.awaited)
	if err == nil {
		err = w.neighbour.look(ctx, w.session)
	}
	if err != nil && !isBusy(err) {
		w.session.broken = true
	}
	return classify(err)
}

// discard closes a session that may stand in a transaction that nobody can end.
func (w *writer) discard(ctx context.Context) {
	if w.session == nil || !w.session.broken {
		return
	}
	if err := w.session.close(); err != nil {
		w.s.log.WarnContext(ctx, "close of a broken connection", "error", err)
	}
	w.session, w.neighbour.version = nil, 0
}

// refuse answers those who wait, up to the number last, with err.
func (w *writer) refuse(last uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for ; n < len(w.queue) && w.queue[n].number <= last; n++ {
		if k := w.queue[n]; k.stage == waiting {
			k.stage = ran
			k.answer <- err
		}
	}
	w.queue = slices.Delete(w.queue, 0, n)
}

// group is one transaction of the writer.
type group struct {
	w     *writer
	c     *session
	began time.Time
	// calls have run and get their answer when the transaction has ended.
	calls []*call
	// dirty: there is something to commit.
	dirty bool
	// over: no other call joins.
	over bool
	// lost is why what was written is gone although nobody asked for that.
	lost error
}

// next takes the call whose turn it is out of the queue; nil where none joins any more.
func (g *group) next() *call {
	if g.over || len(g.calls) >= g.w.groupCalls || len(g.calls) > 0 && time.Since(g.began) > g.w.groupTime {
		return nil
	}
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	g.w.drop()
	if len(g.w.queue) == 0 {
		return nil
	}
	k := g.w.queue[0]
	if k.alone {
		// A long one lets nobody wait for it who has written already.
		if len(g.calls) > 0 {
			return nil
		}
		g.over = true
	}
	g.w.queue = slices.Delete(g.w.queue, 0, 1)
	k.stage = running
	return k
}

const savepoint = "call"

// run runs a call. Where it fails or says so, what it did is taken back: by its savepoint, or,
// as long as nobody before it has written, by the end of the transaction, which saves the
// savepoint to a call that is alone.
func (g *group) run(ctx context.Context, k *call) {
	marked := g.dirty
	if marked {
		if k.err = g.c.control(ctx, "SAVEPOINT "+savepoint); k.err != nil {
			g.fail(k.err)
		}
	}
	if k.err == nil {
		k.verdict, k.err = g.call(k) //nolint:contextcheck // runs under the ctx of its caller
	}
	left := k.ctx.Err()
	if k.err = classify(k.err); left != nil && k.read() {
		k.err = classify(left)
	}
	switch keep := k.err == nil && k.verdict == commit; {
	case g.lost != nil:
	case marked:
		g.leave(ctx, keep)
	case keep:
		g.dirty = true
	default:
		g.over = true
	}
	g.w.mu.Lock()
	k.stage = ran
	if left != nil {
		// It has taken part in nothing, and its caller does not wait for others.
		k.answer <- k.err
	} else {
		g.calls = append(g.calls, k)
	}
	if k.ended != nil {
		close(k.ended)
	}
	g.w.mu.Unlock()
}

// call runs the function of a call. A panic is the error of that call alone.
func (g *group) call(k *call) (v verdict, err error) {
	defer func() {
		if p := recover(); p != nil {
			g.w.s.log.ErrorContext(k.ctx, "panic in a write", "panic", p, "stack", string(debug.Stack()))
			// Nobody knows in the middle of what the driver was.
			g.c.broken, g.over = true, true
			v, err = rollback, fmt.Errorf("panic: %v", p)
		}
	}()
	return k.fn(context.WithoutCancel(k.ctx), g.c)
}

// leave ends the savepoint of a call. Some errors make SQLite end the transaction by itself;
// then the savepoint is gone, and with it what the calls before have written.
func (g *group) leave(ctx context.Context, keep bool) {
	if !keep {
		if err := g.c.control(ctx, "ROLLBACK TO "+savepoint); err != nil {
			g.fail(err)
			return
		}
	}
	if err := g.c.control(ctx, "RELEASE "+savepoint); err != nil {
		g.fail(err)
	}
}

// fail gives the transaction up: nothing of it is committed.
func (g *group) fail(err error) {
	g.lost, g.over = err, true
	g.c.broken = true
}

// end commits what the calls have written, and answers them in the order of their arrival.
// All of them wait for it, also those that have written nothing: they may have read what the
// others wrote. What would be committed to a file that nobody opens any more is not stored (E10).
func (g *group) end(ctx context.Context) {
	var outcome error
	if g.lost == nil && g.dirty {
		g.lost = g.w.s.atItsPath()
	}
	switch {
	case g.lost != nil:
		g.c.rollback(ctx)
		outcome = fmt.Errorf("%w: rolled back together with another write: %w", storage.ErrUnavailable, g.lost)
		if errors.Is(g.lost, storage.ErrUnavailable) {
			outcome = g.lost
		}
	case g.dirty:
		outcome = g.c.commit(ctx)
	default:
		g.c.rollback(ctx)
	}
	for _, k := range g.calls {
		k.answer <- k.outcome(outcome)
	}
}

// outcome is the answer to a call, given how its transaction has ended. What a failed commit
// left in the log may be found there after a crash, so what it wrote may be kept or not (D8);
// a call that wrote nothing has read what nobody can vouch for.
func (k *call) outcome(end error) error {
	switch {
	case end == nil, k.err != nil && !k.read():
		return k.err
	case k.err == nil && k.verdict == commit || !errors.Is(end, storage.ErrOutcomeUnknown):
		return end
	default:
		return fmt.Errorf("%w: a write before it was not committed", storage.ErrUnavailable)
	}
}

// read tells whether what a call says, be it an error, is about what is stored.
func (k *call) read() bool { return !errors.Is(k.err, storage.ErrUnavailable) }
