package blackbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// TestStatementsPerCall counts what a single call costs PostgreSQL, BEGIN and COMMIT
// counted. A queue pays per statement and commit, so this is the price list. What makes a
// message claimable costs a notification where another server is there to be told.
func TestStatementsPerCall(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		db := Postgres(t)
		s := db.Start(t)
		untilAlone(t, s)
		statementsPerCall(t, db, s, 0)
	})
	t.Run("beside another server", func(t *testing.T) {
		db := Postgres(t)
		s := db.Start(t)
		db.Start(t)
		eventually(t, "they know of each other", func() bool { return known(t, s) == 1 })
		statementsPerCall(t, db, s, 1)
	})
}

// statementsPerCall is the price list of a server where telling the others costs so much.
func statementsPerCall(t *testing.T, db *Database, s *Server, telling float64) {
	t.Helper()
	c := s.Client(t)
	count := CountStatements(t, db)
	const n = 100
	var held []*queueboxv1.ClaimedMessage
	refill := func(queue string) {
		held = nil
		enqueueMany(t, c, queue, n)
		for len(held) < n {
			held = append(held, claim(t, c, queue, 1000, time.Hour)...)
		}
	}
	for _, tc := range []struct {
		name    string
		prepare func(queue string)
		call    func(queue string, i int) error
		limit   float64 // statements for each call
	}{
		{"unkeyed Enqueue", nil, func(q string, _ int) error {
			_, err := c.Enqueue(t.Context(), &queueboxv1.EnqueueRequest{Queue: q, Payload: []byte("x")})
			return err
		}, 1 + telling},
		{"Claim", func(q string) { enqueueMany(t, c, q, n) }, func(q string, _ int) error {
			out, err := c.Claim(t.Context(), &queueboxv1.ClaimRequest{Queue: q, LeaseMs: 3_600_000})
			if err == nil && len(out.GetMessages()) != 1 {
				return fmt.Errorf("%d messages", len(out.GetMessages()))
			}
			return err
		}, 2},
		{"Renew", refill, func(q string, i int) error {
			_, err := c.Renew(t.Context(), &queueboxv1.RenewRequest{Queue: q, MessageId: held[i].GetMessage().GetMessageId(), ClaimToken: held[i].GetClaimToken()})
			return err
		}, 1},
		{"unkeyed Complete", refill, func(q string, i int) error {
			_, err := c.Complete(t.Context(), completion(q, held[i]))
			return err
		}, 1},
		{"Retry", refill, func(q string, i int) error {
			_, err := c.Retry(t.Context(), &queueboxv1.RetryRequest{Queue: q, MessageId: held[i].GetMessage().GetMessageId(), ClaimToken: held[i].GetClaimToken(), DelayMs: proto.Int64(3_600_000)})
			return err
		}, 2},
		{"Claim of a batch", func(q string) { enqueueMany(t, c, q, n*10) }, func(q string, _ int) error {
			out, err := c.Claim(t.Context(), &queueboxv1.ClaimRequest{Queue: q, LeaseMs: 3_600_000, MaxMessages: 10})
			if err == nil && len(out.GetMessages()) != 10 {
				return fmt.Errorf("%d messages", len(out.GetMessages()))
			}
			return err
		}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			enqueue(t, c, tc.name, "so that the queue is known")
			claimOne(t, c, tc.name, time.Hour)
			if tc.prepare != nil {
				tc.prepare(tc.name)
			}
			// What the server runs by itself meanwhile is counted in an idle window of the same
			// length and taken off.
			start := time.Now()
			total, each := count.During(t, func() {
				for i := range n {
					require.NoError(t, tc.call(tc.name, i))
				}
			})
			idle, _ := count.During(t, func() { time.Sleep(time.Since(start)) })
			perCall := float64(total-idle) / n
			t.Logf("%.2f statements a call; %d in all, %d of them idle: %v", perCall, total, idle, each)
			// A few statements of the server's own may still fall into one window and not the other.
			require.LessOrEqual(t, perCall, tc.limit+0.1)
		})
	}
}
