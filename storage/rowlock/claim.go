package rowlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qClaimLook  statement = "claim_look"
	qClaimLock  statement = "claim_lock"
	qClaimDue   statement = "claim_due"
	qClaimMove  statement = "claim_move"
	qClaimLease statement = "claim_lease"
	qClaimTaken statement = "claim_taken"
	qClaimNext  statement = "claim_next"
)

// maxDue bounds how many delayed messages one claim moves to the ready set, so that a claim
// stays short when very many become due at once.
const maxDue = 200

// claimTries bounds how often a claim looks anew because a claim id came up meanwhile.
const claimTries = 5

// Claim implements storage.Store. A look that takes no lock comes first: it answers where there
// is nothing to do, and else tells where in the order of a claim the first message stands, so
// that the locks begin there. The transaction that follows locks messages, writes their leases,
// and reads what it has written.
func (s *Store) Claim(ctx context.Context, p storage.ClaimParams) (storage.ClaimResult, error) {
	if len(p.Calls) == 0 {
		return storage.ClaimResult{}, nil
	}
	for range claimTries {
		k, err := s.claimOnce(ctx, p)
		if err == nil && !k.met {
			return k.res, nil
		}
		if err != nil {
			return storage.ClaimResult{}, err
		}
	}
	return storage.ClaimResult{}, fmt.Errorf("%s: claim: %w: the claim ids keep changing", s.engine.Name, storage.ErrUnavailable)
}

func (s *Store) claimOnce(ctx context.Context, p storage.ClaimParams) (*claiming, error) {
	k := &claiming{p: p}
	if err := s.read(ctx, "claim", func(c *session) error { return k.look(ctx, c) }); err != nil {
		return nil, err
	}
	if !k.known && (k.paused || !k.due && k.from == nil) {
		k.res.End = !k.paused
		return k, nil
	}
	looked := *k
	err := s.write(ctx, "claim", func(c *session) (verdict, error) {
		again := looked
		k = &again
		k.c, k.res.Calls = c, servedCalls(len(p.Calls))
		return k.run(ctx)
	})
	return k, err
}

// claiming is one claim.
type claiming struct {
	c   *session
	p   storage.ClaimParams
	res storage.ClaimResult

	// What the look found: the settings of the queue, whether delayed messages are due, where
	// the first claimable message stands, and whether a claim id was used before.
	paused, limited bool
	due             bool
	from            []segment
	known           bool

	// met says that a claim id came up since the look, so nothing happened.
	met bool
	// The bounds of C13, and what was taken against them.
	wireBytes, payloadBytes int64
	// moved says that delayed messages were moved.
	moved bool
	// guards makes the rows of the calls with a claim id, and goes with what locks the first
	// messages.
	guards []step
}

func servedCalls(n int) []storage.ClaimOutcome {
	calls := make([]storage.ClaimOutcome, n)
	for i := range calls {
		calls[i].Status = storage.ClaimServed
	}
	return calls
}

// segment is a part of the ready set in the order of a claim: from a place on up to an urgency,
// the priority with its sign turned.
type segment struct {
	urgency int64
	ready   time.Time
	last    int64
}

// earliest is before every ready time, as far as the databases know one.
var earliest = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)

// segments are the parts of the ready set that a claim walks: all of it, or what hints leave.
func segments(hints []storage.ScanHint) []segment {
	sorted := slices.Clone(hints)
	slices.SortFunc(sorted, func(a, b storage.ScanHint) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.ReadyTime.Compare(b.ReadyTime))
	})
	all := []segment{{urgency: math.MinInt32 - 1, ready: earliest, last: math.MaxInt32 + 1}}
	for _, h := range sorted {
		urgency, end := -int64(h.Priority), &all[len(all)-1]
		if urgency == end.urgency {
			continue // the same priority twice: the earlier hint hides less
		}
		next := segment{urgency: urgency, ready: h.ReadyTime, last: end.last}
		end.last = urgency - 1
		all = append(all, next)
	}
	return all
}

// look tells whether there is something to do, and answers for the case that there is not.
func (k *claiming) look(ctx context.Context, c *session) error {
	p := k.p
	*k = claiming{c: c, p: p}
	k.res.Calls = servedCalls(len(p.Calls))
	v := c.s.engine.Values
	ids := c.named("claim_ids", k.claimIDs(nil))
	parts := segments(p.ScanFrom)
	for n, part := range parts {
		var (
			next, ready sql.NullTime
			urgency     sql.NullInt64
			known       int64
			inFlight    int32
			perSecond   float64
		)
		err := c.one(
			ctx, qClaimLook,
			args(a("queue_id", p.QueueID), a("urgency", part.urgency), a("ready_time", v.Time(part.ready)), a("last_urgency", part.last), ids),
			&k.res.Now, &k.paused, &inFlight, &perSecond, &next, &urgency, &ready, &known,
		)
		if errors.Is(err, sql.ErrNoRows) {
			return storage.ErrQueueNotFound
		}
		if err != nil {
			return err
		}
		k.res.Now, k.res.NextReady, k.known = k.res.Now.UTC(), utc(next), known > 0
		k.limited = inFlight > 0 || perSecond > 0
		k.due = next.Valid && !k.res.NextReady.After(k.res.Now)
		if urgency.Valid {
			k.from = slices.Clone(parts[n:])
			k.from[0].urgency, k.from[0].ready = urgency.Int64, ready.Time
			break
		}
		if k.paused {
			break
		}
	}
	return nil
}

// wanted is how many messages the calls want that no repeat has answered.
func (k *claiming) wanted() int {
	want := 0
	for i, call := range k.p.Calls {
		if k.res.Calls[i].Status == storage.ClaimServed {
			want += call.Max
		}
	}
	return want
}

// run claims in a transaction.
func (k *claiming) run(ctx context.Context) (verdict, error) {
	there := !k.paused && (k.due || k.from != nil)
	if err := k.serialise(ctx, there); err != nil {
		return rollback, err
	}
	wrote, err := k.replay(ctx)
	if err != nil {
		return rollback, err
	}
	want := k.wanted()
	if !there || want == 0 {
		return verdict(wrote), nil
	}
	allowed := want
	var l *limits
	if k.limited {
		if l, err = k.c.limit(ctx, k.p.QueueID, want); err != nil {
			return rollback, err
		}
		if allowed, wrote = l.allowed, wrote || l.wrote; l.queue.Paused {
			return verdict(wrote), nil
		}
	}
	if allowed > 0 {
		k.guard()
	}
	taken, err := k.take(ctx, allowed)
	if err != nil || k.met {
		return rollback, err
	}
	var next []step
	if k.due && len(taken) < want {
		next = append(next, k.next())
	}
	claimed, err := k.deal(ctx, taken, next)
	if err != nil {
		return rollback, err
	}
	if allowed > 0 && (len(taken) > 0 || k.moved) {
		if err := k.note(ctx); err != nil {
			return rollback, err
		}
	}
	if l != nil {
		if err := l.spend(ctx, claimed, &k.res); err != nil {
			return rollback, err
		}
	}
	return verdict(wrote || k.moved || len(taken) > 0), nil
}

// serialise takes the locks that come before all others, where there is something to claim:
// that of the claims of the queue, where the engine needs one, and that of its limit, where it
// has one.
func (k *claiming) serialise(ctx context.Context, there bool) error {
	if !there {
		return nil
	}
	if lock := k.c.s.engine.ClaimLock; lock != nil {
		tx, ok := k.c.q.(Transaction)
		if !ok {
			return errors.New("a claim without a transaction")
		}
		if err := lock(ctx, tx, k.p.QueueID); err != nil {
			return err
		}
	}
	if k.limited && k.known {
		_, _, err := k.c.lockLimit(ctx, k.p.QueueID)
		return err
	}
	return nil
}

// next reads when the next delayed message becomes ready: what was due is in the ready set now.
func (k *claiming) next() step {
	k.res.NextReady = time.Time{}
	list := args(a("queue_id", k.p.QueueID), a("now", k.c.s.engine.Values.Time(k.res.Now)))
	return reading(qClaimNext, list, func(rows *sql.Rows) error {
		err := rows.Scan(&k.res.NextReady)
		k.res.NextReady = k.res.NextReady.UTC()
		return err
	})
}

// candidate is a message that the transaction has locked.
type candidate struct {
	id                      int64
	urgency                 int64
	ready                   time.Time
	payloadBytes, wireBytes int64
	claimable, delayed      bool
}

func compareCandidates(x, y candidate) int {
	return cmp.Or(cmp.Compare(x.urgency, y.urgency), x.ready.Compare(y.ready), cmp.Compare(x.id, y.id))
}

// take locks messages in the order of a claim and tells which of them the calls may have: so
// many, and as much as the answer can carry (C13). Delayed ones that became ready stand in line
// like the others, and those of them that are not taken move to the ready set.
func (k *claiming) take(ctx context.Context, limit int) ([]candidate, error) {
	if limit == 0 {
		return nil, nil
	}
	var line, behind []candidate
	v := k.c.s.engine.Values
	due := 0
	if k.due {
		err := k.lock(ctx, qClaimDue, &line, args(a("queue_id", k.p.QueueID), a("now", v.Time(k.res.Now)), a("limit", int64(maxDue))))
		if err != nil || k.met {
			return nil, err
		}
		due = len(line)
		for i := range line {
			line[i].delayed = true
		}
	}
	for _, part := range k.from {
		n := limit - (len(line) - due)
		if n == 0 {
			break
		}
		err := k.lock(ctx, qClaimLock, &line, args(
			a("queue_id", k.p.QueueID), a("urgency", part.urgency), a("ready_time", v.Time(part.ready)), a("last_urgency", part.last),
			a("limit", int64(n)),
		))
		if err != nil || k.met {
			return nil, err
		}
	}
	ready := len(line) - due
	slices.SortFunc(line, compareCandidates)
	var taken []candidate
	cut := false
	for _, m := range line {
		if m.claimable && !cut && len(taken) < limit && k.fits(len(taken), m) {
			taken = append(taken, m)
			continue
		}
		cut = cut || m.claimable
		if m.delayed {
			behind = append(behind, m)
		}
	}
	k.res.More = ready >= limit || due >= maxDue || cut
	k.res.End = !k.res.More && len(behind) == 0
	return taken, k.move(ctx, behind)
}

// lock locks messages by a statement. The first one of a claim makes the rows of its claim ids
// before; where one of them is there meanwhile, met says so, and nothing has happened.
func (k *claiming) lock(ctx context.Context, q statement, into *[]candidate, list []Arg) error {
	guards := k.guards
	k.guards = nil
	err := k.c.together(ctx, append(guards, reading(q, list, func(rows *sql.Rows) error {
		var m candidate
		err := rows.Scan(&m.id, &m.urgency, &m.ready, &m.payloadBytes, &m.wireBytes, &m.claimable)
		m.ready = m.ready.UTC()
		*into = append(*into, m)
		return err
	}))...)
	if err != nil && len(guards) > 0 && k.c.s.engine.Errors.Duplicate(err) {
		k.met = true
		return nil
	}
	return err
}

// fits counts a message against the bounds of the answer: rows are cut before they are
// leased, and one is always allowed (C13).
func (k *claiming) fits(taken int, m candidate) bool {
	k.wireBytes += m.wireBytes
	k.payloadBytes += m.payloadBytes
	var maxPayload int64
	if len(k.p.Calls) == 1 {
		maxPayload = k.p.Calls[0].MaxPayloadBytes
	}
	tooMuch := k.p.MaxWireBytes > 0 && k.wireBytes > k.p.MaxWireBytes || maxPayload > 0 && k.payloadBytes > maxPayload
	return taken == 0 || !tooMuch
}

// move moves delayed messages that are due to the ready set. Where servers give hints, one with
// its old ready time may be hidden, so it becomes ready now, and not before the hint of this
// claim; the order among those moved together is kept by the microsecond.
func (k *claiming) move(ctx context.Context, due []candidate) error {
	if len(due) == 0 {
		return nil
	}
	hints := make(map[int64]time.Time, len(k.p.ScanFrom))
	for _, h := range k.p.ScanFrom {
		hints[-int64(h.Priority)] = h.ReadyTime
	}
	list := make([][]any, len(due))
	for i, m := range due {
		ready := m.ready
		if now := k.res.Now.Add(time.Duration(i-len(due)) * time.Microsecond); k.p.ScanFrom != nil && now.After(ready) {
			ready = now
		}
		if hint, ok := hints[m.urgency]; ok && hint.After(ready) {
			ready = ceil(hint)
		}
		list[i] = []any{m.id, instant(ready)}
	}
	k.moved = true
	return k.c.exactly(ctx, qClaimMove, len(due), k.c.list(list))
}

// deal leases messages to the calls, in the order of the calls, and runs what is to be read
// besides.
func (k *claiming) deal(ctx context.Context, taken []candidate, besides []step) ([]storage.Claimed, error) {
	if len(taken) == 0 {
		return nil, k.c.together(ctx, besides...)
	}
	var (
		tokens = make([]storage.Token, len(taken))
		leases = make([][]any, 0, len(taken))
		ids    = make([]int64, len(taken))
		place  = make(map[int64]int, len(taken))
		ends   = make([]int, len(k.p.Calls))
		v      = k.c.s.engine.Values
	)
	for i := range tokens {
		if _, err := rand.Read(tokens[i][:]); err != nil {
			return nil, err
		}
		ids[i], place[taken[i].id] = taken[i].id, i
	}
	for i, call := range k.p.Calls {
		n := len(leases)
		if k.res.Calls[i].Status == storage.ClaimServed {
			n = min(n+call.Max, len(taken))
		}
		for at := len(leases); at < n; at++ {
			leases = append(leases, []any{ids[at], v.TokenText(tokens[at]), ceilDuration(call.Lease).Microseconds(), call.WorkerID})
		}
		ends[i] = n
	}
	claimed := make([]storage.Claimed, len(taken))
	err := k.c.together(ctx, append([]step{
		matching(qClaimLease, len(taken), k.c.list(leases), a("queue_id", k.p.QueueID)),
		reading(qClaimTaken, args(k.c.ids(ids)), func(rows *sql.Rows) error {
			m, err := k.c.scanClaimed(rows)
			if i, ok := place[idOf(m.Message.Ref.Position)]; ok {
				claimed[i] = m
			}
			return err
		}),
	}, besides...)...)
	if err != nil {
		return nil, err
	}
	from := 0
	for i, end := range ends {
		if k.res.Calls[i].Status == storage.ClaimServed {
			k.res.Calls[i].Messages = claimed[from:end:end]
		}
		from = end
	}
	for i := range claimed {
		if claimed[i].Token != tokens[i] {
			return nil, fmt.Errorf("message %d was leased and is not there", taken[i].id)
		}
	}
	return claimed, nil
}
