package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// BenchmarkCycle enqueues, claims and completes batches beside a standing backlog. One
// operation is one message.
func BenchmarkCycle(b *testing.B) {
	for _, k := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", k), func(b *testing.B) {
			s, err := Open(b.Context(), Config{Path: filepath.Join(b.TempDir(), "q.db")})
			require.NoError(b, err)
			defer func() { require.NoError(b, s.Close()) }()
			q, err := s.CreateQueue(b.Context(), "bench", storage.QueueSettings{CompletedRetention: time.Hour}, 0)
			require.NoError(b, err)
			c := cycle{b: b, s: s, queueID: q.ID, messages: make([]storage.NewMessage, k)}
			payload := make([]byte, 100)
			for i := range c.messages {
				c.messages[i] = storage.NewMessage{QueueID: q.ID, Payload: payload, ContentType: "application/json", WireBytes: 250}
			}
			for range 10_000 / k {
				c.enqueue()
			}
			b.ResetTimer()
			start := time.Now()
			for done := 0; done < b.N; done += k {
				c.enqueue()
				c.complete(c.claim())
			}
			b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "messages/s")
			b.ReportMetric(float64(c.spent[0].Microseconds())/float64(b.N), "µs-enqueue/op")
			b.ReportMetric(float64(c.spent[1].Microseconds())/float64(b.N), "µs-claim/op")
			b.ReportMetric(float64(c.spent[2].Microseconds())/float64(b.N), "µs-complete/op")
		})
	}
}

// cycle is a benchmark with the time that it spent in each of the three calls.
type cycle struct {
	b        *testing.B
	s        *Store
	queueID  int32
	messages []storage.NewMessage
	hint     time.Time
	spent    [3]time.Duration
}

func (c *cycle) enqueue() {
	start := time.Now()
	_, err := c.s.Enqueue(c.b.Context(), storage.EnqueueParams{Messages: c.messages})
	require.NoError(c.b, err)
	c.spent[0] += time.Since(start)
}

func (c *cycle) claim() []storage.Claimed {
	start := time.Now()
	p := storage.ClaimParams{QueueID: c.queueID, Calls: []storage.ClaimCall{{Max: len(c.messages), Lease: time.Minute, WorkerID: "bench"}}}
	if !c.hint.IsZero() {
		p.ScanFrom = []storage.ScanHint{{ReadyTime: c.hint}}
	}
	r, err := c.s.Claim(c.b.Context(), p)
	require.NoError(c.b, err)
	got := r.Calls[0].Messages
	require.Len(c.b, got, len(c.messages))
	c.hint = got[len(got)-1].Message.ReadyTime
	c.spent[1] += time.Since(start)
	return got
}

func (c *cycle) complete(got []storage.Claimed) {
	start := time.Now()
	p := storage.SettleParams{Items: make([]storage.Settlement, len(got))}
	for i, m := range got {
		p.Items[i] = storage.Settlement{Ref: m.Message.Ref, Token: m.Token, Action: storage.ActionComplete}
	}
	_, err := c.s.Settle(c.b.Context(), p)
	require.NoError(c.b, err)
	c.spent[2] += time.Since(start)
}
