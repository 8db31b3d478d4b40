package stress

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// The judge must find what it is there to find: each case plants one violation, or what
// only looks like one.
func TestJudge(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	ref := func(p int64) storage.Ref { return storage.Ref{QueueID: 1, Position: p} }
	deliver := func(h *History, p int64, token string, attempt int32, sent, got int) {
		h.Delivered([]Delivery{{Ref: ref(p), Key: "k", Token: token, Attempt: attempt, Sent: at(sent), Got: at(got), Lease: time.Second}})
	}
	settle := func(h *History, p int64, token, action, verdict, outcome, facts string, sent, got int) {
		h.Settled(Settle{Ref: ref(p), Token: token, Action: action, Verdict: verdict, Outcome: outcome, Facts: facts, Sent: at(sent), Got: at(got)})
	}
	two := func(h *History) {
		h.Enqueued(ref(1), "k", at(0), at(1))
		h.Enqueued(ref(2), "k", at(0), at(1))
	}
	cases := map[string]struct {
		blocking []int32
		run      func(h *History)
		want     string
	}{
		"in order": {run: func(h *History) {
			two(h)
			deliver(h, 1, "a", 1, 10, 20)
			settle(h, 1, "a", "complete", Applied, "completed", "x", 30, 40)
			deliver(h, 2, "b", 1, 25, 50)
			settle(h, 2, "b", "complete", Applied, "completed", "x", 60, 70)
		}},
		"the second first": {want: "O5", run: func(h *History) {
			two(h)
			deliver(h, 2, "b", 1, 10, 20)
		}},
		"answered after it has ended": {run: func(h *History) {
			h.Enqueued(ref(1), "k", at(0), at(100))
			h.Enqueued(ref(2), "k", at(0), at(1))
			deliver(h, 1, "a", 1, 10, 20)
			settle(h, 1, "a", "complete", Applied, "completed", "x", 30, 40)
			deliver(h, 2, "b", 1, 110, 120)
		}},
		"enqueued once more, since the first answer was lost, after it has ended": {run: func(h *History) {
			h.Enqueued(ref(1), "k", at(35), at(60))
			h.Enqueued(ref(2), "k", at(60), at(65))
			deliver(h, 1, "a", 1, 10, 20)
			settle(h, 1, "a", "complete", Applied, "completed", "x", 30, 40)
			deliver(h, 2, "b", 1, 70, 80)
		}},
		"enqueued once more, and passed over": {want: "O5", run: func(h *History) {
			h.Enqueued(ref(1), "k", at(35), at(60))
			h.Enqueued(ref(2), "k", at(60), at(65))
			deliver(h, 2, "b", 1, 70, 80)
			settle(h, 2, "b", "complete", Applied, "completed", "x", 82, 86)
			deliver(h, 1, "a", 1, 90, 100)
		}},
		"both at once": {want: "O1", run: func(h *History) {
			two(h)
			deliver(h, 1, "a", 1, 10, 20)
			deliver(h, 2, "b", 1, 30, 40)
			settle(h, 1, "a", "complete", Applied, "completed", "x", 50, 60)
		}},
		"both in one answer": {want: "O3", run: func(h *History) {
			h.Delivered([]Delivery{{Ref: ref(1), Key: "k", Token: "a"}, {Ref: ref(2), Key: "k", Token: "b"}})
		}},
		"one message twice": {want: "C1", run: func(h *History) {
			two(h)
			deliver(h, 1, "a", 1, 10, 20)
			deliver(h, 1, "b", 2, 30, 40)
		}},
		"again after its lease": {run: func(h *History) {
			two(h)
			deliver(h, 1, "a", 1, 10, 20)
			deliver(h, 1, "b", 2, 30, 1020)
		}},
		"an attempt lost": {want: "S3", run: func(h *History) {
			two(h)
			deliver(h, 1, "a", 2, 10, 20)
			deliver(h, 1, "b", 2, 1030, 1040)
		}},
		"passed over while it waits for a retry": {want: "O5", run: func(h *History) {
			two(h)
			deliver(h, 1, "a", 1, 10, 20)
			settle(h, 1, "a", "retry", Applied, "retried", "x", 30, 40)
			deliver(h, 1, "b", 2, 50, 60)
			deliver(h, 2, "c", 1, 1200, 1300)
		}},
		"redriven in front of a pending one": {want: "O5", run: func(h *History) {
			two(h)
			deliver(h, 1, "a", 1, 10, 20)
			settle(h, 1, "a", "dead_letter", Applied, "dead", "x", 30, 40)
			h.Redriven(ref(1), at(50), at(60))
			deliver(h, 2, "b", 1, 70, 80)
		}},
		"redriven in front of a held one": {run: func(h *History) {
			two(h)
			deliver(h, 1, "a", 1, 10, 20)
			settle(h, 1, "a", "dead_letter", Applied, "dead", "x", 30, 40)
			deliver(h, 2, "b", 1, 50, 60)
			h.Redriven(ref(1), at(70), at(80))
			deliver(h, 2, "c", 2, 1100, 1110)
		}},
		"redriven in front of one whose claim was never answered": {run: func(h *History) {
			two(h)
			deliver(h, 1, "a", 1, 10, 20)
			settle(h, 1, "a", "dead_letter", Applied, "dead", "x", 30, 40)
			h.Redriven(ref(1), at(70), at(80))
			deliver(h, 2, "b", 2, 100, 110)
		}},
		"redriven in front of one whose claim was answered": {want: "O5", run: func(h *History) {
			two(h)
			deliver(h, 1, "a", 1, 10, 20)
			settle(h, 1, "a", "dead_letter", Applied, "dead", "x", 30, 40)
			deliver(h, 2, "b", 1, 50, 60)
			settle(h, 2, "b", "retry", Applied, "retried", "x", 62, 64)
			h.Redriven(ref(1), at(70), at(80))
			deliver(h, 2, "c", 2, 100, 110)
		}},
		"put back and passed over": {want: "O5", run: func(h *History) {
			two(h)
			deliver(h, 1, "a", 1, 10, 20)
			settle(h, 1, "a", "dead_letter", Applied, "dead", "x", 30, 40)
			deliver(h, 2, "b", 1, 50, 60)
			h.Redriven(ref(1), at(70), at(80))
			settle(h, 2, "b", "retry", Applied, "retried", "x", 90, 95)
			deliver(h, 2, "c", 2, 100, 110)
		}},
		"a dead one is passed over": {run: func(h *History) {
			two(h)
			deliver(h, 1, "a", 1, 10, 20)
			h.SeenDead(ref(1), at(1020))
			deliver(h, 2, "b", 1, 1030, 1040)
		}},
		"a dead one that blocks is passed over": {want: "O5", blocking: []int32{1}, run: func(h *History) {
			two(h)
			deliver(h, 1, "a", 1, 10, 20)
			settle(h, 1, "a", "dead_letter", Applied, "dead", "x", 30, 40)
			deliver(h, 2, "b", 1, 50, 60)
		}},
		"settled twice": {want: "S7", run: func(h *History) {
			two(h)
			deliver(h, 1, "a", 1, 10, 20)
			settle(h, 1, "a", "complete", Applied, "completed", "x", 30, 40)
			settle(h, 1, "a", "complete", Applied, "completed", "x", 30, 40)
		}},
		"settled in two ways": {want: "S7", run: func(h *History) {
			two(h)
			deliver(h, 1, "a", 1, 10, 20)
			settle(h, 1, "a", "complete", Applied, "completed", "x", 30, 40)
			settle(h, 1, "a", "retry", Applied, "completed", "x", 30, 40)
		}},
		"a repeat with other facts": {want: "S5", run: func(h *History) {
			two(h)
			deliver(h, 1, "a", 1, 10, 20)
			settle(h, 1, "a", "complete", Applied, "completed", "x", 30, 40)
			settle(h, 1, "a", "complete", Already, "completed", "y", 50, 60)
		}},
		"another outcome told": {want: "S6", run: func(h *History) {
			two(h)
			deliver(h, 1, "a", 1, 10, 20)
			settle(h, 1, "a", "complete", Applied, "completed", "x", 30, 40)
			settle(h, 1, "a", "retry", Settled, "dead", "", 50, 60)
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := NewHistory(c.blocking...)
			c.run(h)
			problems, _ := h.Judge()
			if c.want == "" {
				require.Empty(t, problems)
				return
			}
			require.NotEmpty(t, problems)
			require.Equal(t, c.want, problems[0][:len(c.want)], problems[0])
		})
	}
}
