package blackbox

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

func states(s ...queueboxv1.MessageState) *queueboxv1.MessageFilter {
	return &queueboxv1.MessageFilter{States: s}
}

var dead = queueboxv1.MessageState_MESSAGE_STATE_DEAD

// deadLetter claims and dead-letters n messages of a queue, with a reason code.
func deadLetter(t *testing.T, c *Client, queue string, n int, code string) {
	t.Helper()
	for n > 0 {
		got := claim(t, c, queue, int32(min(n, 1000)), time.Minute)
		require.NotEmpty(t, got)
		req := &queueboxv1.BatchSettleRequest{}
		for _, m := range got {
			req.Items = append(req.Items, &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_DeadLetter{
				DeadLetter: &queueboxv1.DeadLetterRequest{
					Queue: queue, MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), Error: "no: " + code, ReasonCode: code,
				},
			}})
		}
		out, err := c.BatchSettle(within(t), req)
		require.NoError(t, err)
		for _, r := range out.GetResults() {
			require.Nil(t, r.GetError())
		}
		n -= len(got)
	}
}

func redriveAll(t *testing.T, c *Client, req *queueboxv1.RedriveMessagesRequest) int64 {
	t.Helper()
	out, err := c.Admin.RedriveMessages(within(t), req)
	require.NoError(t, err)
	require.False(t, out.GetMore())
	return out.GetMessageCount()
}

func purgeAll(t *testing.T, c *Client, req *queueboxv1.PurgeMessagesRequest) int64 {
	t.Helper()
	out, err := c.Admin.PurgeMessages(within(t), req)
	require.NoError(t, err)
	require.False(t, out.GetMore())
	return out.GetMessageCount()
}

// TestO7RedriveOverTheWire: dead messages come back, the token of then is answered as it was,
// and the attempts made stay counted.
func TestO7RedriveOverTheWire(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t).Client(t)
		_, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "q", Payload: []byte("x"), MaxAttempts: 1, IdempotencyKey: "key"})
		require.NoError(t, err)
		m := claimOne(t, c, "q", time.Minute)
		id := m.GetMessage().GetMessageId()
		settle := &queueboxv1.DeadLetterRequest{Queue: "q", MessageId: id, ClaimToken: m.GetClaimToken(), Error: "broken", ReasonCode: "BROKEN"}
		_, err = c.DeadLetter(within(t), settle)
		require.NoError(t, err)

		filter := &queueboxv1.MessageFilter{ReasonCodes: []string{"BROKEN"}, ErrorContains: "rok", MessageIds: []string{id}}
		for range 2 {
			require.EqualValues(t, 1, redriveAll(t, c, &queueboxv1.RedriveMessagesRequest{Queue: "q", Filter: filter, DryRun: true}))
			require.Equal(t, dead, message(t, c, "q", id).GetState(), "a dry run changes nothing")
		}
		require.EqualValues(t, 1, redriveAll(t, c, &queueboxv1.RedriveMessagesRequest{Queue: "q", Filter: filter, MaxAttempts: 2}))
		got := message(t, c, "q", id)
		require.Equal(t, queueboxv1.MessageState_MESSAGE_STATE_PENDING, got.GetState())
		require.EqualValues(t, 1, got.GetAttempt())
		require.EqualValues(t, 3, got.GetMaxAttempts())
		require.Equal(t, "broken", got.GetLastError())
		require.EqualValues(t, 0, redriveAll(t, c, &queueboxv1.RedriveMessagesRequest{Queue: "q", Filter: filter}))

		again, err := c.DeadLetter(within(t), settle)
		require.NoError(t, err)
		require.True(t, again.GetAlreadySettled(), "S5")
		_, err = complete(t, c, "q", m)
		RequireStatus(t, err, settledAs("DEAD"))
		twice, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "q", Payload: []byte("x"), MaxAttempts: 1, IdempotencyKey: "key"})
		require.NoError(t, err)
		require.True(t, twice.GetDuplicate(), "E1")
		next := claimOne(t, c, "q", time.Minute)
		require.Equal(t, id, next.GetMessage().GetMessageId())
		require.EqualValues(t, 2, next.GetMessage().GetAttempt())
		_, err = complete(t, c, "q", next)
		require.NoError(t, err)
	})
}

// TestW1RedriveOnAnotherServerWakesAWaiter: what one server redrives, a worker at another gets.
func TestW1RedriveOnAnotherServerWakesAWaiter(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		operator, worker := db.Start(t).Client(t), db.Start(t).Client(t)
		enqueue(t, operator, "q", "x")
		deadLetter(t, operator, "q", 1, "R")
		wait := waitFor(t, worker, &queueboxv1.ClaimRequest{Queue: "q", WaitMs: 15_000})
		eventually(t, "the worker waits", func() bool { return waiting(t, worker, "q") == 1 })
		require.EqualValues(t, 1, redriveAll(t, operator, &queueboxv1.RedriveMessagesRequest{Queue: "q", Filter: states(dead)}))
		got := <-wait
		require.Len(t, got.out.GetMessages(), 1)
	})
}

// TestD6PurgeOverTheWire: what is deleted is gone with its key; a claimed message stays.
func TestD6PurgeOverTheWire(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		c := db.Start(t).Client(t)
		held := enqueue(t, c, "q", "held")
		m := claimOne(t, c, "q", time.Minute)
		out, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "q", Payload: []byte("x"), IdempotencyKey: "key"})
		require.NoError(t, err)
		all := states(
			queueboxv1.MessageState_MESSAGE_STATE_PENDING, queueboxv1.MessageState_MESSAGE_STATE_COMPLETED,
			dead, queueboxv1.MessageState_MESSAGE_STATE_CANCELLED,
		)
		require.EqualValues(t, 1, purgeAll(t, c, &queueboxv1.PurgeMessagesRequest{Queue: "q", Filter: all, DryRun: true}))
		require.EqualValues(t, 1, purgeAll(t, c, &queueboxv1.PurgeMessagesRequest{Queue: "q", Filter: all}))
		_, err = c.Admin.GetMessage(within(t), &queueboxv1.GetMessageRequest{Queue: "q", MessageId: out.GetMessageId()})
		RequireStatus(t, err, messageNotFound)
		fresh, err := c.Enqueue(within(t), &queueboxv1.EnqueueRequest{Queue: "q", Payload: []byte("other"), IdempotencyKey: "key"})
		require.NoError(t, err)
		require.False(t, fresh.GetDuplicate(), "E5: its key is free")
		require.EqualValues(t, 0, purgeAll(t, c, &queueboxv1.PurgeMessagesRequest{
			Queue: "q", Filter: &queueboxv1.MessageFilter{MessageIds: []string{held}},
		}), "a claimed one stays")
		_, err = complete(t, c, "q", m)
		require.NoError(t, err)
		require.EqualValues(t, 1, purgeAll(t, c, &queueboxv1.PurgeMessagesRequest{
			Queue: "q", Filter: &queueboxv1.MessageFilter{MessageIds: []string{held}},
		}))
		_, err = complete(t, c, "q", m)
		RequireStatus(t, err, messageNotFound)
	})
}

// TestO7RedriveAndPurgeOfMany goes through 20,000 dead messages while a worker works: in calls
// that max_messages cuts, in one that goes to the end, and from two clients at once.
func TestO7RedriveAndPurgeOfMany(t *testing.T) {
	EachParallel(t, func(t *testing.T, db *Database) {
		const n = 20_000
		c := db.Start(t).Client(t)
		for i := range n / 1000 {
			enqueueMany(t, c, "q", 1000)
			deadLetter(t, c, "q", 1000, fmt.Sprint("R", i%4))
		}
		few := &queueboxv1.MessageFilter{ReasonCodes: []string{"R3"}}
		require.EqualValues(t, n/4, redriveAll(t, c, &queueboxv1.RedriveMessagesRequest{Queue: "q", Filter: few, DryRun: true}))
		var moved int64
		for calls := 0; ; calls++ {
			require.Less(t, calls, 10)
			out, err := c.Admin.RedriveMessages(within(t), &queueboxv1.RedriveMessagesRequest{Queue: "q", Filter: few, MaxMessages: 1700})
			require.NoError(t, err)
			require.LessOrEqual(t, out.GetMessageCount(), int64(1700))
			moved += out.GetMessageCount()
			if !out.GetMore() {
				break
			}
			require.EqualValues(t, 1700, out.GetMessageCount())
		}
		require.EqualValues(t, n/4, moved)
		require.EqualValues(t, n*3/4, purgeAll(t, c, &queueboxv1.PurgeMessagesRequest{Queue: "q", Filter: states(dead), DryRun: true}))

		// A redrive and a purge at once: each message is one or the other.
		var redriven, purged *int64
		var wg sync.WaitGroup
		var errs [2]error
		both := func(i int, do func(ctx context.Context) (int64, error)) *int64 {
			sum := new(int64)
			wg.Go(func() { *sum, errs[i] = do(within(t)) })
			return sum
		}
		redriven = both(0, func(ctx context.Context) (int64, error) {
			out, err := c.Admin.RedriveMessages(ctx, &queueboxv1.RedriveMessagesRequest{Queue: "q", Filter: &queueboxv1.MessageFilter{ReasonCodes: []string{"R0"}}})
			return out.GetMessageCount(), err
		})
		purged = both(1, func(ctx context.Context) (int64, error) {
			out, err := c.Admin.PurgeMessages(ctx, &queueboxv1.PurgeMessagesRequest{Queue: "q", Filter: states(dead)})
			return out.GetMessageCount(), err
		})
		wg.Wait()
		require.NoError(t, errs[0])
		require.NoError(t, errs[1])
		rest := purgeAll(t, c, &queueboxv1.PurgeMessagesRequest{Queue: "q", Filter: states(dead)})
		t.Logf("%d redriven, %d purged, %d left for a second pass", *redriven, *purged, rest)
		require.EqualValues(t, n*3/4, *redriven+*purged+rest)
		require.Len(t, claim(t, c, "q", 1000, time.Minute), 1000)
		require.Equal(t, moved+*redriven-1000, purgeAll(t, c, &queueboxv1.PurgeMessagesRequest{
			Queue: "q", Filter: states(queueboxv1.MessageState_MESSAGE_STATE_PENDING),
		}))
	})
}

// badBatchInputs are those of RedriveMessages and PurgeMessages.
func badBatchInputs(c *Client) []badInput {
	var all []badInput
	redrive := func(want Want, name string, req *queueboxv1.RedriveMessagesRequest) {
		all = append(all, badInput{name: "RedriveMessages " + name, want: want, call: func(ctx context.Context) error {
			_, err := c.Admin.RedriveMessages(ctx, req)
			return err
		}})
	}
	purge := func(want Want, name string, req *queueboxv1.PurgeMessagesRequest) {
		all = append(all, badInput{name: "PurgeMessages " + name, want: want, call: func(ctx context.Context) error {
			_, err := c.Admin.PurgeMessages(ctx, req)
			return err
		}})
	}
	some := &queueboxv1.MessageFilter{WorkerId: "w"}
	redrive(invalid("queue"), "without a queue", &queueboxv1.RedriveMessagesRequest{Filter: some})
	purge(invalid("queue"), "without a queue", &queueboxv1.PurgeMessagesRequest{Filter: some})
	redrive(queueNotFound, "of an unknown queue", &queueboxv1.RedriveMessagesRequest{Queue: "unknown", Filter: some})
	purge(queueNotFound, "of an unknown queue", &queueboxv1.PurgeMessagesRequest{Queue: "unknown", Filter: some})
	redrive(invalid("max_messages"), "negative max_messages", &queueboxv1.RedriveMessagesRequest{Queue: "q", Filter: some, MaxMessages: -1})
	purge(invalid("max_messages"), "negative max_messages", &queueboxv1.PurgeMessagesRequest{Queue: "q", Filter: some, MaxMessages: -1})
	redrive(invalid("max_attempts"), "negative max_attempts", &queueboxv1.RedriveMessagesRequest{Queue: "q", Filter: some, MaxAttempts: -1})
	redrive(invalid("spread_ms"), "negative spread_ms", &queueboxv1.RedriveMessagesRequest{Queue: "q", Filter: some, SpreadMs: -1})
	redrive(invalid("spread_ms"), "spread_ms of a century", &queueboxv1.RedriveMessagesRequest{Queue: "q", Filter: some, SpreadMs: 100 * 365 * 24 * 3600 * 1000})
	redrive(invalid("filter.states[0]"), "cancelled", &queueboxv1.RedriveMessagesRequest{Queue: "q", Filter: states(queueboxv1.MessageState_MESSAGE_STATE_CANCELLED)})
	redrive(invalid("filter.states[1]"), "pending", &queueboxv1.RedriveMessagesRequest{Queue: "q", Filter: states(dead, queueboxv1.MessageState_MESSAGE_STATE_PENDING)})
	purge(invalid("filter.states[1]"), "processing", &queueboxv1.PurgeMessagesRequest{Queue: "q", Filter: states(dead, queueboxv1.MessageState_MESSAGE_STATE_PROCESSING)})
	for field, f := range map[string]*queueboxv1.MessageFilter{
		"filter":                 nil,
		"filter.states[0]":       states(queueboxv1.MessageState_MESSAGE_STATE_UNSPECIFIED),
		"filter.states[1]":       states(dead, 77),
		"filter.dead_reasons[0]": {DeadReasons: []queueboxv1.DeadReason{77}},
		"filter.message_ids[0]":  {MessageIds: []string{"nonsense"}},
		"filter.ordering_key":    {OrderingKey: strings.Repeat("k", 256)},
	} {
		redrive(invalid(field), "with a bad "+field, &queueboxv1.RedriveMessagesRequest{Queue: "q", Filter: f})
		purge(invalid(field), "with a bad "+field, &queueboxv1.PurgeMessagesRequest{Queue: "q", Filter: f})
	}
	redrive(invalid("filter"), "with an empty filter", &queueboxv1.RedriveMessagesRequest{Queue: "q", Filter: &queueboxv1.MessageFilter{}})
	purge(invalid("filter"), "with an empty filter", &queueboxv1.PurgeMessagesRequest{Queue: "q", Filter: &queueboxv1.MessageFilter{}})
	return all
}
