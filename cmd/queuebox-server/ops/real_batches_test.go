package ops

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// in counts the messages of "jobs" in a state.
func (b *bench) in(state string) int {
	b.t.Helper()
	return len(b.objects("messages", "list", "jobs", "--all", "--state", state))
}

func TestRedriveOnARealServer(t *testing.T) {
	b := serve(t)
	b.fill(2300)
	b.buryAll()
	require.Equal(t, "2,300 messages of queue jobs would be redriven\n", b.ok("redrive", "jobs", "--all-dead", "--dry-run"))
	require.Equal(t, "0 messages of queue jobs would be redriven\n", b.ok("redrive", "jobs", "--error-contains=paper", "--dry-run"))
	require.Equal(t, 2300, b.in("dead"), "a dry run moves nothing")

	require.Equal(t, "1,200 messages of queue jobs were redriven\n", b.ok("redrive", "jobs", "--error-contains=no such printer", "--max=1200"))
	require.Equal(t, 1100, b.in("dead"))
	require.Equal(t, 1200, b.in("pending"))

	got := b.run("redrive", "jobs", "--all-dead", "--spread=1h", "--max-attempts=2", "-o", "json")
	require.NoError(t, got.err)
	require.JSONEq(t, `{"messageCount":"1100","more":false}`, got.stdout)
	require.Zero(t, b.in("dead"))
	require.Equal(t, 2300, b.in("pending"))
	text := b.ok("messages", "list", "jobs", "--all")
	require.Greater(t, strings.Count(text, "ready in "), 1000, "they come one after the other")
	require.Contains(t, text, " 1/3 ", "so many attempts on top of those made")
}

func TestPurgeOnARealServer(t *testing.T) {
	b := serve(t)
	b.fill(1500)
	b.buryAll()
	b.fill(20)
	held := b.claim().GetMessage().GetMessageId()
	require.Equal(t, "1,500 messages of queue jobs would be purged\n", b.ok("purge", "jobs", "--state=dead", "--dry-run"))
	require.Equal(t, "1,500 messages of queue jobs were purged\n", b.ok("purge", "jobs", "--state=dead", "--yes"))
	require.Zero(t, b.in("dead"))
	require.Equal(t, "19 messages of queue jobs were purged\n", b.ok("purge", "jobs", "--state=pending", "--yes"))
	left := b.objects("messages", "list", "jobs", "--all")
	require.Len(t, left, 1, "a message that a worker holds stays")
	require.Equal(t, held, left[0]["messageId"])
	requireFailure(t, b.run("purge", "nowhere", "--state=dead", "--yes").err, "QUEUE_NOT_FOUND")
	requireFailure(t, b.run("redrive", "nowhere", "--all-dead").err, "QUEUE_NOT_FOUND")
}

func TestExplainOnARealServer(t *testing.T) {
	b := serve(t)
	b.enqueue("x")
	held := b.claim().GetMessage().GetMessageId()
	ready := b.enqueue("x")
	delayed, err := b.Enqueue(t.Context(), &queueboxv1.EnqueueRequest{Queue: "jobs", DelayMs: 3_600_000})
	require.NoError(t, err)

	require.Regexp(t, `(?m)^claimable now +yes$`, b.ok("explain", "jobs", ready))
	text := b.ok("explain", "jobs", held)
	require.Regexp(t, `(?m)^claimable now +no$`, text)
	require.Regexp(t, `(?m)^held back .*worker-1`, text)
	text = b.ok("explain", "jobs", delayed.GetMessageId())
	require.Regexp(t, `(?m)^earliest .*\(in (1h|59m\d*s?)\)$`, text)
	b.ok("queues", "pause", "jobs")
	object := b.object("explain", "jobs", ready)
	require.Equal(t, false, object["claimable"])
	require.Len(t, object["blockers"], 1)
	requireFailure(t, b.run("explain", "jobs", ready+"0").err, "message_id")
}

// buryAll makes everything in "jobs" dead.
func (b *bench) buryAll() {
	b.t.Helper()
	for {
		out, err := b.Claim(b.t.Context(), &queueboxv1.ClaimRequest{Queue: "jobs", WorkerId: "worker-1", MaxMessages: 1000})
		require.NoError(b.t, err)
		if len(out.GetMessages()) == 0 {
			return
		}
		var items []*queueboxv1.SettleItem
		for _, m := range out.GetMessages() {
			items = append(items, &queueboxv1.SettleItem{Action: &queueboxv1.SettleItem_DeadLetter{DeadLetter: &queueboxv1.DeadLetterRequest{
				Queue: "jobs", MessageId: m.GetMessage().GetMessageId(), ClaimToken: m.GetClaimToken(), ReasonCode: "bad", Error: "no such printer",
			}}})
		}
		settled, err := b.BatchSettle(b.t.Context(), &queueboxv1.BatchSettleRequest{Items: items})
		require.NoError(b.t, err)
		for _, r := range settled.GetResults() {
			require.Nil(b.t, r.GetError())
		}
	}
}
