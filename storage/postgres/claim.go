package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

// segments are the parts of the ready set that a claim walks, in claim order: for each
// hint its priority from the hint on, and between them the ranges of priorities without
// a hint, from their start: the zero time is before all of them.
type segments struct {
	highest, lowest []int32
	from            []time.Time
	position        []int64
	hinted          []bool
}

func segmentsOf(hints []storage.ScanHint) segments {
	sorted := slices.Clone(hints)
	slices.SortFunc(sorted, func(a, b storage.ScanHint) int {
		return cmp.Or(
			cmp.Compare(b.Priority, a.Priority), a.ReadyTime.Compare(b.ReadyTime), cmp.Compare(a.Position, b.Position),
		)
	})
	var g segments
	add := func(highest, lowest int64, from time.Time, position int64, hinted bool) {
		if highest < lowest {
			return
		}
		g.highest = append(g.highest, int32(highest))
		g.lowest = append(g.lowest, int32(lowest))
		g.from = append(g.from, from)
		g.position = append(g.position, position)
		g.hinted = append(g.hinted, hinted)
	}
	next := int64(math.MaxInt32)
	for _, h := range sorted {
		p := int64(h.Priority)
		if p > next {
			continue // the same priority twice: the earlier hint hides less
		}
		add(next, p+1, time.Time{}, 0, false)
		add(p, p, h.ReadyTime, h.Position, true)
		next = p - 1
	}
	add(next, math.MinInt32, time.Time{}, 0, false)
	return g
}

// claimRows is what one run of the statement returned.
type claimRows struct {
	now    time.Time
	picked int64 // rows of the ready set that the statement looked at
	due    int64 // delayed rows that became ready
	open   bool  // the queue is not paused
	next   time.Time
	// rows in the order of their rank, and places with what belongs to each of them.
	rows   []storage.Claimed
	places []rowPlace
	// limited says that the queue has a limit, so that this statement took nothing.
	limited bool
	// limit and limitEnd are what a limit had to say.
	limit    storage.Limit
	limitEnd time.Time
}

// note puts into the answer of a claim what one run found, for calls that wanted so many.
func (c *claimRows) note(p storage.ClaimParams, todo []int, out *storage.ClaimResult) {
	out.Now, out.NextReady, out.Limit, out.LimitEnd = c.now, c.next, c.limit, c.limitEnd
	want := int64(wanted(p, todo))
	more := c.picked >= want || c.due >= maxDue || c.picked+c.due > int64(len(c.rows))
	out.More = (out.More || more) && c.limit == storage.LimitNone
	out.DueEnd = c.open && c.due < maxDue && c.limit == storage.LimitNone
	out.End = c.open && !more && c.limit == storage.LimitNone
	// The rows of a call stand together, so it gets a part of them, and none is copied.
	for from := 0; from < len(c.rows); {
		to := from + 1
		for to < len(c.rows) && c.places[to].call == c.places[from].call {
			to++
		}
		call := &out.Calls[c.places[from].call]
		if call.Messages == nil {
			call.Messages = c.rows[from:to:to]
		} else {
			call.Messages = append(call.Messages, c.rows[from:to]...)
		}
		from = to
	}
}

func wanted(p storage.ClaimParams, todo []int) int {
	want := 0
	for _, i := range todo {
		want += max(p.Calls[i].Max, 1)
	}
	return want
}

// rowPlace is whose a row is: the place of the call in ClaimParams.Calls.
type rowPlace struct {
	call int
	rank int64
}

// maxDue is the bound on delayed rows in claim.sql.
const maxDue = 200

// Claim implements storage.Store. Without claim ids it is one statement, with them two
// in one round trip; more only where a claim id names an earlier call.
func (s *Store) Claim(ctx context.Context, p storage.ClaimParams) (storage.ClaimResult, error) {
	out := storage.ClaimResult{Calls: make([]storage.ClaimOutcome, len(p.Calls))}
	todo := make([]int, len(p.Calls))
	for i := range p.Calls {
		out.Calls[i].Status = storage.ClaimServed
		todo[i] = i
	}
	if len(todo) == 0 {
		return out, nil
	}
	err := s.claimAll(ctx, p, todo, &out)
	if err != nil {
		return storage.ClaimResult{}, s.undoClaim(ctx, p, out, err)
	}
	return out, nil
}

func (s *Store) claimAll(ctx context.Context, p storage.ClaimParams, todo []int, out *storage.ClaimResult) error {
	met, err := s.claimCalls(ctx, p, todo, out)
	if err != nil {
		return err
	}
	// Calls whose claim id was met before (C14) get theirs one by one: this is rare.
	for _, i := range met {
		if err := s.claimAgain(ctx, p, i, out); err != nil {
			return err
		}
	}
	return nil
}

// undoClaim gives back what some calls got before another one failed, since a claim that
// fails leaves every row as it was (C10). It answers the error of the claim.
func (s *Store) undoClaim(ctx context.Context, p storage.ClaimParams, out storage.ClaimResult, failed error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockWait)
	defer cancel()
	for i, call := range out.Calls {
		if call.Status != storage.ClaimServed || len(call.Messages) == 0 {
			continue
		}
		back := storage.GiveBackParams{QueueID: p.QueueID, ClaimID: p.Calls[i].ClaimID}
		for _, m := range call.Messages {
			back.Claims = append(back.Claims, storage.HeldClaim{Ref: m.Message.Ref, Token: m.Token})
		}
		if r, err := s.GiveBack(ctx, back); err != nil || r.GivenBack != len(back.Claims) {
			failed = fmt.Errorf("postgres: claim: %w: some messages stay leased: %w", storage.ErrOutcomeUnknown, failed)
		}
	}
	return failed
}

// claimCalls serves the calls of todo, and returns those whose claim id was met before;
// these took no rows, else the insert of the call had failed.
func (s *Store) claimCalls(ctx context.Context, p storage.ClaimParams, todo []int, out *storage.ClaimResult) (met []int, err error) {
	rows, met, err := s.claimOnce(ctx, p, todo)
	if hasCode(err, codeUniqueViolation) {
		// A call of the same id has rows or was faster: nothing of this statement happened.
		// The others once more, without those that are known now.
		if len(met) == 0 {
			return s.claimSingly(ctx, p, todo, out)
		}
		rest := slices.DeleteFunc(slices.Clone(todo), func(i int) bool { return slices.Contains(met, i) })
		if len(rest) == 0 {
			return met, nil
		}
		more, err := s.claimCalls(ctx, p, rest, out)
		return append(met, more...), err
	}
	if err != nil {
		return nil, err
	}
	rows.note(p, todo, out)
	return met, nil
}

// claimSingly serves each call by a statement of its own.
func (s *Store) claimSingly(ctx context.Context, p storage.ClaimParams, todo []int, out *storage.ClaimResult) (met []int, err error) {
	if len(todo) == 1 {
		return todo, nil
	}
	for _, i := range todo {
		known, err := s.claimCalls(ctx, p, []int{i}, out)
		if err != nil {
			return nil, err
		}
		met = append(met, known...)
	}
	return met, nil
}

// claimAgain answers a call whose claim id was met before.
func (s *Store) claimAgain(ctx context.Context, p storage.ClaimParams, i int, out *storage.ClaimResult) error {
	call := p.Calls[i]
	for range 3 {
		outcome, now, found, err := s.replay(ctx, p.QueueID, call)
		if err != nil {
			return err
		}
		if found {
			out.Calls[i], out.Now, out.End, out.DueEnd = outcome, now, false, false
			return nil
		}
		// It was given back in between, so this is a new claim after all.
		out.Calls[i] = storage.ClaimOutcome{Status: storage.ClaimServed}
		rows, known, err := s.claimOnce(ctx, p, []int{i})
		if hasCode(err, codeUniqueViolation) || (err == nil && len(known) > 0) {
			continue
		}
		if err != nil {
			return err
		}
		rows.note(p, []int{i}, out)
		return nil
	}
	return fmt.Errorf("postgres: claim: %w: the claim id keeps changing", storage.ErrUnavailable)
}

// claimOnce claims for the calls of todo, after a look for their claim ids. known are the
// calls whose claim id was found, also where the claim itself failed.
func (s *Store) claimOnce(ctx context.Context, p storage.ClaimParams, todo []int) (out claimRows, known []int, err error) {
	if !s.limited.has(p.QueueID) {
		out, known, err = s.claimFree(ctx, p, todo)
		if err != nil || !out.limited {
			return out, known, err
		}
		s.limited.set(p.QueueID, true)
		todo = without(todo, known)
		if len(todo) == 0 {
			return out, known, nil
		}
	}
	out, more, err := s.claimLimited(ctx, p, todo)
	if err == nil && !out.limited {
		// The limit was taken away: from here on the short way again.
		s.limited.set(p.QueueID, false)
		out, more, err = s.claimFree(ctx, p, todo)
		if err == nil && out.limited {
			err = fmt.Errorf("postgres: claim: %w: the limit of the queue keeps changing", storage.ErrUnavailable)
		}
	}
	known = append(known, more...)
	slices.Sort(known)
	return out, known, err
}

// claimFree is one statement, with claim ids two, in one round trip. It takes nothing from
// a queue that has a limit and says so.
func (s *Store) claimFree(ctx context.Context, p storage.ClaimParams, todo []int) (out claimRows, known []int, err error) {
	b := bind(p, todo)
	if b.ready() && !s.whole.has(p.QueueID) {
		if err := s.write(ctx, "claim", b.readyStep(p, s.sql.claimReady, &out)); err != nil {
			return claimRows{}, nil, err
		}
		if len(out.rows) > 0 {
			out.sort()
			return out, nil, nil
		}
		s.whole.set(p.QueueID, true)
	}
	defer func() {
		if err == nil && out.plain() {
			s.whole.set(p.QueueID, false)
		}
	}()
	steps := s.lookForCalls(p, b, &known)
	if err := s.write(ctx, "claim", append(steps, b.step(p, s.sql.claim, &out))...); err != nil {
		return claimRows{}, known, err
	}
	out.sort()
	return out, known, nil
}

// bound is what the claim statement is given for some calls.
type bound struct {
	todo []int
	args []any
	// asked are the claim ids, byID whose they are.
	asked [][16]byte
	byID  map[[16]byte]int
	// callOf tells for each rank which call gets the row, tokens which token it gets.
	callOf []int32
	tokens [][16]byte
}

func bind(p storage.ClaimParams, todo []int) *bound {
	var (
		b         = &bound{todo: todo, byID: make(map[[16]byte]int)}
		leases    = make([]int64, 0, len(todo))
		workers   = make([]string, 0, len(todo))
		ids       = make([]*[16]byte, 0, len(todo))
		byPayload int64
	)
	for n, i := range todo {
		call := &p.Calls[i]
		for range max(call.Max, 1) {
			b.callOf = append(b.callOf, int32(n+1))
		}
		leases = append(leases, call.Lease.Microseconds())
		workers = append(workers, call.WorkerID)
		var id *[16]byte
		if call.ClaimID != (storage.ClaimID{}) {
			raw := [16]byte(call.ClaimID)
			id = &raw
			b.asked = append(b.asked, raw)
			b.byID[raw] = i
		}
		ids = append(ids, id)
		byPayload = max(byPayload, call.MaxPayloadBytes)
	}
	g := segmentsOf(p.ScanFrom)
	b.tokens = newTokens(len(b.callOf))
	b.args = []any{
		p.QueueID, int64(len(b.callOf)), p.MaxWireBytes, byPayload, b.callOf, leases, workers, ids,
		g.position, g.highest, g.lowest, g.from, p.ScanFrom != nil, b.tokens, p.DueFrom,
	}
	return b
}

// newTokens draws tokens at random: there is nothing to guess one by, whoever knows others.
func newTokens(n int) [][16]byte {
	tokens := make([][16]byte, n)
	drawn := make([]byte, n*len(storage.Token{}))
	_, _ = rand.Read(drawn) // never fails: it ends the program instead
	for i := range tokens {
		tokens[i] = [16]byte(drawn[i*len(tokens[i]):])
	}
	return tokens
}

// atMost cuts the rows that the calls may get, those of the last calls first.
func (b *bound) atMost(n int) {
	if n < len(b.callOf) {
		b.callOf, b.tokens = b.callOf[:n], b.tokens[:n]
		b.args[1], b.args[4], b.args[13] = int64(n), b.callOf, b.tokens
	}
}

// lookForCalls finds out which calls have claim ids that were used before.
func (s *Store) lookForCalls(p storage.ClaimParams, b *bound, known *[]int) []step {
	if len(b.asked) == 0 {
		return nil
	}
	return []step{{sql: s.sql.claimCalls, args: []any{p.QueueID, b.asked}, scan: each(
		func() { *known = nil },
		func(r pgx.Rows) error {
			var id [16]byte
			var worker string
			if err := r.Scan(&id, &worker); err != nil {
				return err
			}
			*known = append(*known, b.byID[id])
			return nil
		},
	)}}
}

// step is the claim statement itself, with more arguments where its text has them.
func (b *bound) step(p storage.ClaimParams, sql string, out *claimRows, more ...any) step {
	args := append(slices.Clone(b.args), more...)
	return step{sql: sql, args: args, scan: each(
		func() { *out = claimRows{} },
		func(r pgx.Rows) error { return out.scan(b, p, r) },
	)}
}

// sort puts the rows in the order of their rank, in which the database mostly gives them.
func (c *claimRows) sort() {
	byRank := func(a, b rowPlace) int { return cmp.Compare(a.rank, b.rank) }
	if slices.IsSortedFunc(c.places, byRank) {
		return
	}
	order := make([]int, len(c.rows))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return byRank(c.places[a], c.places[b]) })
	rows, places := c.rows, c.places
	c.rows, c.places = make([]storage.Claimed, 0, len(rows)), make([]rowPlace, 0, len(rows))
	for _, i := range order {
		c.rows, c.places = append(c.rows, rows[i]), append(c.places, places[i])
	}
}

// scan reads a row of claim.sql. What is not of a message stands in each of them.
func (c *claimRows) scan(b *bound, p storage.ClaimParams, r pgx.Rows) error {
	row := raw(r)
	if c.rows == nil {
		c.now, c.next, c.open, c.limited = row.time(0), row.time(5), row.bool(1), row.bool(2)
		c.picked, c.due = row.int(3), row.int(4)
	}
	if row.null(6) {
		return row.err
	}
	return c.add(b, p, &row, 6)
}

// add reads a message, whose columns begin at some place.
func (c *claimRows) add(b *bound, p storage.ClaimParams, row *row, at int) error {
	attributes, err := row.attributes(at + 5)
	if err != nil {
		return err
	}
	before := &storage.Message{} // most rows have the same of some texts
	if n := len(c.rows); n > 0 {
		before = &c.rows[n-1].Message
	} else {
		most := min(c.picked+c.due, int64(len(b.callOf)))
		c.rows, c.places = make([]storage.Claimed, 0, most), make([]rowPlace, 0, most)
	}
	rank := row.int(at)
	call := b.todo[b.callOf[rank-1]-1]
	payload := row.bytes(at + 3)
	c.places = append(c.places, rowPlace{call, rank})
	c.rows = append(c.rows, storage.Claimed{
		Token: storage.Token(b.tokens[rank-1]),
		Message: storage.Message{
			Ref:            storage.Ref{QueueID: p.QueueID, Position: row.int(at + 1)},
			IdempotencyKey: row.text(at + 2),
			Payload:        payload,
			PayloadBytes:   int64(len(payload)),
			ContentType:    row.textLike(at+4, before.ContentType),
			Attributes:     attributes,
			Priority:       row.int32(at + 6),
			State:          storage.StateProcessing,
			Attempt:        row.int32(at + 7),
			MaxAttempts:    row.int32(at + 8),
			CreateTime:     row.time(at + 9),
			ReadyTime:      row.time(at + 10),
			ExpireTime:     row.time(at + 11),
			LastError:      row.textLike(at+12, before.LastError),
			ReasonCode:     row.textLike(at+13, before.ReasonCode),
			WorkerID:       p.Calls[call].WorkerID,
			LeaseEnd:       row.time(at + 14),
			OrderingKey:    row.textLike(at+15, before.OrderingKey),
		},
	})
	return row.err
}
