package stress

import (
	"fmt"
	"slices"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// clockSlack is how far a finish time of the database is trusted against the clock of the
// caller; both are the same machine's.
const clockSlack = 5 * time.Millisecond

// healed is how long a message that was redriven in front of a claimed one may have to
// wait after the lease of that one has run out (O9).
const healed = 5 * time.Second

// Judge judges the whole history and returns the violations, and how many more there were.
func (h *History) Judge() (problems []string, more int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	keys := map[string][]*message{}
	for _, m := range h.messages {
		slices.SortFunc(m.deliveries, func(a, b Delivery) int { return a.Got.Compare(b.Got) })
		h.judgeDeliveries(m)
		h.judgeSettles(m)
		if m.key != "" {
			k := fmt.Sprint(m.ref.QueueID, "/", m.key)
			keys[k] = append(keys[k], m)
		}
	}
	for k, ms := range keys {
		slices.SortFunc(ms, func(a, b *message) int { return int(a.ref.Position - b.ref.Position) })
		h.judgeKey(k, ms)
	}
	return h.problems, h.dropped
}

// earliestEnd is the first moment at which the claim of a delivery can have ended.
func (m *message) earliestEnd(d Delivery) time.Time {
	end := d.Sent.Add(d.Lease)
	for _, s := range m.settles {
		if s.Token == d.Token && s.Sent.Before(end) {
			end = s.Sent
		}
	}
	for _, c := range m.calls {
		if (c.what == "revoke" || c.what == "close") && c.got.After(d.Sent) && c.sent.Before(end) {
			end = c.sent
		}
	}
	return end
}

// judgeDeliveries: no message is held twice at a time (C1), every delivery has its own token
// (C4), and the attempts rise (S1, S3).
func (h *History) judgeDeliveries(m *message) {
	tokens := map[string]bool{}
	for i, d := range m.deliveries {
		if tokens[d.Token] {
			h.fail("C4", "%v: one token twice", m.ref)
		}
		tokens[d.Token] = true
		if i == 0 {
			continue
		}
		before := m.deliveries[i-1]
		if d.Sent.After(before.Got) && d.Got.Before(m.earliestEnd(before)) {
			h.fail("C1", "%v: delivered %v before its lease ended", m.ref, m.earliestEnd(before).Sub(d.Got))
			h.tell(m)
		}
		if d.Sent.After(before.Got) && (d.Attempt < before.Attempt || d.Attempt == before.Attempt && !m.refunded(before)) {
			h.fail("S3", "%v: attempt %d after %d", m.ref, d.Attempt, before.Attempt)
			h.tell(m)
		}
	}
}

// refunded: the attempt of a delivery can have been given back.
func (m *message) refunded(d Delivery) bool {
	return slices.ContainsFunc(m.settles, func(s Settle) bool { return s.Token == d.Token && s.Action == "release" }) ||
		slices.ContainsFunc(m.calls, func(c call) bool { return c.what == "revoke" && c.got.After(d.Sent) })
}

// judgeSettles: one settlement a token wins (S7), and everybody is told the same (S5, S6).
func (h *History) judgeSettles(m *message) {
	type fate struct {
		applied int
		outcome string
		facts   map[string]string
	}
	fates := map[string]*fate{}
	for _, s := range m.settles {
		if s.Verdict == Lost || s.Verdict == Unknown {
			continue
		}
		f := fates[s.Token]
		if f == nil {
			f = &fate{outcome: s.Outcome, facts: map[string]string{}}
			fates[s.Token] = f
		}
		if s.Verdict == Applied {
			f.applied++
		}
		if f.outcome != s.Outcome {
			h.fail("S6", "%v: one token is told %s and %s", m.ref, f.outcome, s.Outcome)
			h.tell(m)
		}
		if s.Verdict == Settled {
			continue
		}
		if facts, ok := f.facts[s.Action]; ok && facts != s.Facts {
			h.fail("S5", "%v: %s repeated: %s, then %s", m.ref, s.Action, facts, s.Facts)
			h.tell(m)
		}
		f.facts[s.Action] = s.Facts
		if len(f.facts) > 1 {
			h.fail("S7", "%v: two settlements of one token were accepted", m.ref)
			h.tell(m)
		}
	}
	for _, f := range fates {
		if f.applied > 1 {
			h.fail("S7", "%v: one token settled %d times", m.ref, f.applied)
			h.tell(m)
		}
	}
}

// judgeKey: one live lease a key (O1), and no message before one of an earlier place (O5).
func (h *History) judgeKey(key string, ms []*message) {
	type held struct {
		ref        storage.Ref
		got, until time.Time
	}
	var holds []held
	for _, m := range ms {
		for _, d := range m.deliveries {
			holds = append(holds, held{m.ref, d.Got, m.earliestEnd(d)})
		}
	}
	slices.SortFunc(holds, func(a, b held) int { return a.got.Compare(b.got) })
	for i, m := range ms {
		for _, d := range m.deliveries {
			// Leases are short, so only holds from shortly before can last until now.
			from, _ := slices.BinarySearchFunc(holds, d.Got.Add(-2*d.Lease-time.Second), func(x held, t time.Time) int { return x.got.Compare(t) })
			for _, o := range holds[from:] {
				if o.got.After(d.Sent) {
					break
				}
				if o.ref != m.ref && d.Got.Before(o.until) {
					h.fail("O1", "key %s: %v delivered while %v was held for %v more", key, m.ref, o.ref, o.until.Sub(d.Got))
					h.tell(h.messages[o.ref])
					h.tell(m)
				}
			}
			for _, r := range ms[:i] {
				if h.jumped(m, d, r) {
					h.fail("O5", "key %s: %v delivered at %v before %v", key, m.ref, d.Got.Format(clock), r.ref)
					h.tell(r)
					h.tell(m)
				}
			}
		}
	}
}

// jumped tells whether d, a delivery of m, passed over r, which has the earlier place and
// was live for certain all the while.
func (h *History) jumped(m *message, d Delivery, r *message) bool {
	from, redrive, ok := r.liveSince(d.Sent)
	if !ok || r.mayEnd(from, d.Got, h.blocking[m.ref.QueueID]) {
		return false
	}
	return redrive.got.IsZero() || !m.keeps(d, redrive)
}

// liveSince is the last moment before t at which the message was live for certain, and the
// redrive that made it so, where one did.
func (m *message) liveSince(t time.Time) (from time.Time, redrive span, ok bool) {
	// An answer can come after the message was delivered and has ended.
	early := func(s span) bool {
		return slices.ContainsFunc(m.deliveries, func(d Delivery) bool { return d.Got.After(s.sent) && d.Sent.Before(s.got) })
	}
	// What was delivered before the enqueue was answered may have ended by then, also before the
	// call that was answered was sent: a repeat of one whose answer was lost.
	before := slices.ContainsFunc(m.deliveries, func(d Delivery) bool { return d.Sent.Before(m.enqueued.got) })
	if got := m.enqueued.got; !got.IsZero() && got.Before(t) && !before {
		from, ok = got, true
	}
	for _, d := range m.deliveries {
		if d.Got.Before(t) && d.Got.After(from) {
			// It was live when it was claimed; it may have ended since, which mayEnd asks.
			from, redrive, ok = d.Sent, span{}, true
		}
	}
	for _, x := range m.redrives {
		if x.got.Before(t) && x.got.After(from) && !early(x) {
			from, redrive, ok = x.got, x, true
		}
	}
	return from, redrive, ok
}

// mayEnd tells whether the message can have ended between two moments, or have given its key
// free: where the dead block, dying does not (O7).
func (m *message) mayEnd(from, to time.Time, blocking bool) bool {
	within := func(s span) bool { return s.got.After(from) && s.sent.Before(to) }
	for _, s := range m.settles {
		dies := s.Action == "dead_letter" || s.Outcome == "dead"
		if s.Verdict != Lost && within(span{s.Sent, s.Got}) && (!blocking || !dies) {
			return true
		}
	}
	// A cancel that was asked for while the message was held ends it with its next settlement
	// or with its lease.
	for _, c := range m.calls {
		if c.what != "close" && c.got.After(from) && c.sent.Before(to) || c.what == "cancel" && c.sent.Before(to) {
			return true
		}
	}
	if blocking {
		return false
	}
	for _, t := range m.deaths {
		if t.After(from.Add(-clockSlack)) && t.Before(to.Add(clockSlack)) {
			return true
		}
	}
	return false
}

// latestEnd is the last moment at which the claim of a delivery can have held.
func (m *message) latestEnd(d Delivery) time.Time {
	end := d.Got.Add(d.Lease)
	for _, s := range m.settles {
		if s.Token == d.Token && s.Verdict != Lost && s.Verdict != Unknown && s.Got.Before(end) {
			end = s.Got
		}
	}
	return end
}

// keeps tells whether m may be delivered though a message of an earlier place was redriven:
// it held its key when that happened, and has not been put back since (O7).
func (m *message) keeps(d Delivery, redrive span) bool {
	// An attempt that nobody saw was a claim whose answer was lost: its lease may have held the
	// key, and has run out.
	unseen := d.Attempt > 1 && !slices.ContainsFunc(m.deliveries, func(o Delivery) bool { return o.Attempt == d.Attempt-1 })
	if unseen && d.Sent.Before(redrive.got.Add(d.Lease+healed)) {
		return true
	}
	held := false
	last := time.Time{}
	for _, o := range m.deliveries {
		if o.Sent.Before(redrive.got) && m.latestEnd(o).After(redrive.sent) {
			held = true
		}
		if o.Got.Before(d.Got) || o.Token == d.Token {
			if end := o.Got.Add(o.Lease); o.Token != d.Token && end.After(last) {
				last = end
			}
		}
	}
	if !held {
		return false
	}
	for _, s := range m.settles {
		if s.Verdict != Lost && s.Verdict != Unknown && s.Sent.After(redrive.got) && s.Got.Before(d.Sent) {
			return false
		}
	}
	return last.IsZero() || d.Sent.Before(last.Add(healed))
}
