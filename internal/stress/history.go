package stress

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// History is what callers sent and were answered. All times are those of the caller, who
// cannot know when the server did a thing, only that it was between Sent and Got. The
// rules are judged so that every reported violation is one, whatever lay between.
type History struct {
	mu       sync.Mutex
	messages map[storage.Ref]*message
	blocking map[int32]bool
	problems []string
	// told are the messages whose story stands among the problems.
	told    map[storage.Ref]bool
	dropped int
}

// message is all that is known of one message.
type message struct {
	ref        storage.Ref
	key        string
	enqueued   span // zero where the answer was lost
	deliveries []Delivery
	settles    []Settle
	calls      []call // cancels, revokes, and ends of streams that release their leases
	redrives   []span
	// deaths are the finish times at which the message was seen dead.
	deaths []time.Time
}

type span struct{ sent, got time.Time }

type call struct {
	span

	what string
}

// Delivery is a message in the answer of a claim.
type Delivery struct {
	Ref       storage.Ref
	Key       string
	Token     string
	Attempt   int32
	Sent, Got time.Time
	Lease     time.Duration
}

// Settle is a settlement that was tried, and its answer.
type Settle struct {
	Ref    storage.Ref
	Token  string
	Action string
	// Verdict is applied, already, settled, lost or unknown.
	Verdict   string
	Outcome   string
	Facts     string // what S5 says must be the same in a repeat
	Sent, Got time.Time
}

// The verdicts.
const (
	Applied = "applied"
	Already = "already"
	Settled = "settled"
	Lost    = "lost"
	Unknown = "unknown"
)

// maxProblems bounds what is kept; the rest is counted.
const maxProblems = 200

// NewHistory makes an empty one. In the queues named a dead message blocks its key (O7).
func NewHistory(blocking ...int32) *History {
	h := &History{messages: map[storage.Ref]*message{}, blocking: map[int32]bool{}, told: map[storage.Ref]bool{}}
	for _, id := range blocking {
		h.blocking[id] = true
	}
	return h
}

func (h *History) of(ref storage.Ref, key string) *message {
	m := h.messages[ref]
	if m == nil {
		m = &message{ref: ref}
		h.messages[ref] = m
	}
	if key != "" {
		m.key = key
	}
	return m
}

// Enqueued notes an acknowledged enqueue.
func (h *History) Enqueued(ref storage.Ref, key string, sent, got time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of(ref, key).enqueued = span{sent, got}
}

// Delivered notes the messages of one answer of a claim, and judges the answer (O3).
func (h *History) Delivered(ds []Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := map[string]storage.Ref{}
	for _, d := range ds {
		m := h.of(d.Ref, d.Key)
		m.deliveries = append(m.deliveries, d)
		if d.Key == "" {
			continue
		}
		k := fmt.Sprint(d.Ref.QueueID, "/", d.Key)
		if other, twice := seen[k]; twice {
			h.fail("O3", "key %s twice in one answer: %v and %v", d.Key, other, d.Ref)
		}
		seen[k] = d.Ref
	}
}

// Settled notes a settlement.
func (h *History) Settled(s Settle) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.of(s.Ref, "")
	m.settles = append(m.settles, s)
}

// Called notes a cancel, a revoke, or the end ("close") of a stream that releases the leases it
// holds, whatever its answer.
func (h *History) Called(ref storage.Ref, what string, sent, got time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.of(ref, "")
	m.calls = append(m.calls, call{span{sent, got}, what})
}

// Redriven notes a redrive that may have moved the message.
func (h *History) Redriven(ref storage.Ref, sent, got time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.of(ref, "")
	m.redrives = append(m.redrives, span{sent, got})
}

// SeenDead notes the finish time of a message that was seen dead or cancelled.
func (h *History) SeenDead(ref storage.Ref, finish time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.of(ref, "")
	if !slices.Contains(m.deaths, finish) {
		m.deaths = append(m.deaths, finish)
	}
}

// Fail notes a violation that somebody else found.
func (h *History) Fail(rule, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail(rule, format, args...)
}

func (h *History) fail(rule, format string, args ...any) {
	if len(h.problems) >= maxProblems {
		h.dropped++
		return
	}
	h.problems = append(h.problems, rule+": "+fmt.Sprintf(format, args...))
}

// maxTold bounds the messages whose story is told.
const maxTold = 6

// tell adds what is known of a message, in the order of time.
func (h *History) tell(m *message) {
	if h.told[m.ref] || len(h.told) >= maxTold {
		return
	}
	h.told[m.ref] = true
	type line struct {
		at   time.Time
		text string
	}
	lines := []line{}
	add := func(s span, format string, args ...any) {
		lines = append(lines, line{s.sent, fmt.Sprintf("%s to %s ", s.sent.Format(clock), s.got.Format(clock)) + fmt.Sprintf(format, args...)})
	}
	add(m.enqueued, "enqueued")
	for _, d := range m.deliveries {
		add(span{d.Sent, d.Got}, "delivered, attempt %d, token %.6s", d.Attempt, d.Token)
	}
	for _, s := range m.settles {
		add(span{s.Sent, s.Got}, "%s %s %s, token %.6s", s.Action, s.Verdict, s.Outcome, s.Token)
	}
	for _, c := range m.calls {
		add(c.span, "%s", c.what)
	}
	for _, r := range m.redrives {
		add(r, "redriven")
	}
	for _, t := range m.deaths {
		add(span{t, t}, "dead or cancelled")
	}
	slices.SortFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var text strings.Builder
	fmt.Fprintf(&text, "the story of %v:", m.ref)
	for _, l := range lines {
		text.WriteString("\n    " + l.text)
	}
	h.problems = append(h.problems, text.String())
}

const clock = "15:04:05.000000"

// Acknowledged are the messages whose enqueue was acknowledged.
func (h *History) Acknowledged() []storage.Ref {
	h.mu.Lock()
	defer h.mu.Unlock()
	var refs []storage.Ref
	for ref, m := range h.messages {
		if !m.enqueued.got.IsZero() {
			refs = append(refs, ref)
		}
	}
	return refs
}

// Completed tells whether a completion of the message was acknowledged.
func (h *History) Completed(ref storage.Ref) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.messages[ref]
	if m == nil {
		return false
	}
	return slices.ContainsFunc(m.settles, func(s Settle) bool {
		return s.Action == "complete" && (s.Verdict == Applied || s.Verdict == Already)
	})
}

// Counts sums up for people.
func (h *History) Counts() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var deliveries, redrives, calls int
	verdicts := map[string]int{}
	for _, m := range h.messages {
		deliveries += len(m.deliveries)
		redrives += len(m.redrives)
		calls += len(m.calls)
		for _, s := range m.settles {
			verdicts[s.Action+" "+s.Verdict]++
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%d messages, %d deliveries, %d cancels and revokes, %d redrives; settlements:", len(h.messages), deliveries, calls, redrives)
	names := make([]string, 0, len(verdicts))
	for n := range verdicts {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		fmt.Fprintf(&out, " %s %d,", n, verdicts[n])
	}
	return strings.TrimSuffix(out.String(), ",")
}
