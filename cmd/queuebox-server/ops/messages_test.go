package ops

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

func TestListGoesOverAllPages(t *testing.T) {
	b := serve(t)
	b.fill(2500)
	seen := map[string]bool{}
	all := b.objects("messages", "list", "jobs", "--all")
	for _, m := range all {
		seen[m["messageId"].(string)] = true
	}
	require.Len(t, all, 2500)
	require.Len(t, seen, 2500, "each message once")

	require.Len(t, b.objects("messages", "list", "jobs"), 100)
	require.Len(t, b.objects("messages", "list", "jobs", "--limit=1700"), 1700)
	got := b.run("messages", "list", "jobs", "--limit=3")
	require.NoError(t, got.err)
	require.Equal(t, 4, strings.Count(got.stdout, "\n"), "the head and three rows")
	require.Contains(t, got.stderr, "--all lists them")
	got = b.run("messages", "list", "jobs", "--all")
	require.NoError(t, got.err)
	require.Equal(t, 2501, strings.Count(got.stdout, "\n"), "the head comes once")
	require.Empty(t, got.stderr)
	for id := range seen {
		require.Contains(t, got.stdout, id, "ids are whole")
		break
	}
}

func TestListFilters(t *testing.T) {
	b := serve(t)
	b.enqueue("first")
	b.enqueue("second")
	dead := b.bury("no_paper", "the printer\n\x1b[31mis out of paper")
	held := b.claim().GetMessage().GetMessageId()
	ready := b.enqueue("third")
	ids := func(args ...string) []string {
		var out []string
		for _, m := range b.objects(append([]string{"messages", "list", "jobs"}, args...)...) {
			out = append(out, m["messageId"].(string))
		}
		return out
	}
	require.Equal(t, []string{dead}, ids("--state=dead"))
	require.ElementsMatch(t, []string{dead, held}, ids("--state=dead,processing"))
	require.ElementsMatch(t, []string{dead, held}, ids("--worker=worker-1"))
	require.Equal(t, []string{dead}, ids("--reason-code=no_paper"))
	require.Equal(t, []string{dead}, ids("--dead-reason=rejected"))
	require.Empty(t, ids("--dead-reason=expired"))
	require.Equal(t, []string{dead}, ids("--error-contains=out of paper"))
	require.ElementsMatch(t, []string{held, ready}, ids("--id="+held, "--id="+ready))
	require.Len(t, ids("--since=1h"), 3)
	require.Empty(t, ids("--before=1h"))
	require.Empty(t, ids("--since=2190-01-01T00:00:00Z"))
	require.Len(t, ids("--before=2190-01-01T00:00:00Z"), 3)

	text := b.ok("messages", "list", "jobs")
	require.Regexp(t, dead+` +dead +1/20 +\S+ +- +- +worker-1 +rejected/no_paper +the printer\\n\\x1b\[31mis out of paper\n`, text)
	require.Regexp(t, held+` +processing +1/20 +\S+ +leased for \S+ +- +worker-1 `, text)
	require.Regexp(t, ready+` +pending +0/20 +\S+ +ready +- +- +- +-\n`, text)
	require.NotContains(t, text, "\x1b", "what was enqueued does not command the terminal")
}

func TestGetShowsAMessageWhole(t *testing.T) {
	b := serve(t)
	expire := time.Now().Add(2 * time.Hour).UTC().Format(time.RFC3339)
	id := strings.TrimSpace(b.ok("enqueue", "jobs", "--payload", "line one\n\x1b]0;two", "--attribute", "traceparent=00-a;b", "--priority=5", "--expire", expire,
		"--idempotency-key=order-1", "--content-type=text/plain"))
	text := b.ok("messages", "get", "jobs", id)
	require.Contains(t, text, "id               "+id+"\n")
	require.Contains(t, text, "attribute        traceparent = 00-a;b\n")
	require.Contains(t, text, "idempotency key  order-1\n")
	require.Contains(t, text, "payload          16 bytes\n")
	require.Regexp(t, `expires +\S+ \(in 1h59m\)\n`, text)
	require.NotContains(t, text, "line one")
	text = b.ok("messages", "get", "jobs", id, "--payload")
	require.True(t, strings.HasSuffix(text, "\n\nline one\n\\x1b]0;two\n"), text)
	require.NotContains(t, b.object("messages", "get", "jobs", id)["payload"], "bGluZ")
	require.Contains(t, b.object("messages", "get", "jobs", id, "--payload")["payload"], "bGluZ")

	held := b.enqueue("second")
	_ = b.claim()
	token := b.claim().GetClaimToken()
	require.NotEmpty(t, token)
	for _, format := range []string{"table", "json"} {
		require.NotContains(t, b.ok("messages", "get", "jobs", held, "--payload", "-o", format), token, "a claim token is never shown")
		require.NotContains(t, b.ok("messages", "list", "jobs", "-o", format), token)
	}
}

func TestGetOfABodyThatIsNoText(t *testing.T) {
	b := serve(t)
	id := b.enqueue("\xff\x00\x01")
	require.Contains(t, b.ok("messages", "get", "jobs", id, "--payload"), "(3 bytes that are no text; -o json shows them in base64)")
	require.Equal(t, "/wAB", b.object("messages", "get", "jobs", id, "--payload")["payload"])
}

func TestCancel(t *testing.T) {
	b := serve(t)
	held := b.enqueue("x")
	b.claim()
	first, second := b.enqueue("x"), b.enqueue("x")
	b.ok("enqueue", "jobs", "--payload=x", "--idempotency-key=order-1")
	text := b.ok("messages", "cancel", "jobs", first, held)
	require.Equal(t, first+" is cancelled\n"+held+" is held by a worker, which was asked to stop; 'messages revoke' takes it away at once\n", text)
	require.Equal(t, "MESSAGE_STATE_CANCELLED", b.object("messages", "cancel", "jobs", second)["state"])
	require.Equal(t, "order-1 is cancelled\n", b.ok("messages", "cancel", "jobs", "--idempotency-key=order-1"))
	requireUsage(t, b.run("messages", "cancel", "jobs").err, "give ids of messages, or one --idempotency-key")
	requireUsage(t, b.run("messages", "cancel", "jobs", first, "--idempotency-key=x").err, "give ids of messages, or one --idempotency-key")
	requireFailure(t, b.run("messages", "cancel", "jobs", "nonsense").err, "message_id: is not a message_id that a QueueBox server made")
}

func TestRevoke(t *testing.T) {
	b := serve(t)
	id := b.enqueue("x")
	token := b.claim().GetClaimToken()
	text := b.ok("messages", "revoke", "jobs", id, "--refund")
	require.Regexp(t, `(?m)^state +pending$`, text)
	require.Regexp(t, `(?m)^attempt +0/20$`, text)
	require.NotContains(t, text, token)
	requireFailure(t, b.run("messages", "revoke", "jobs", id).err, "MESSAGE_STATE, state=PENDING")
	b.claim()
	again := b.object("messages", "revoke", "jobs", id)
	require.Equal(t, "MESSAGE_STATE_PENDING", again["state"])
	require.InDelta(t, 1, again["attempt"], 0, "the attempt is counted unless it is given back")
}

func TestEnqueueTakesItsBodyFromWhereItIs(t *testing.T) {
	b := serve(t)
	body := func(id string) string {
		m, err := b.admin.GetMessage(t.Context(), &queueboxv1.GetMessageRequest{Queue: "jobs", MessageId: strings.TrimSpace(id), IncludePayload: true})
		require.NoError(t, err)
		return string(m.GetMessage().GetPayload())
	}
	file := filepath.Join(t.TempDir(), "body")
	require.NoError(t, os.WriteFile(file, []byte("from a file"), 0o600))
	require.Equal(t, "from a flag", body(b.ok("enqueue", "jobs", "--payload=from a flag")))
	require.Empty(t, body(b.ok("enqueue", "jobs", "--payload=")), "an empty flag is an empty body")
	require.Equal(t, "from a file", body(b.ok("enqueue", "jobs", "--payload-file", file)))
	b.env.Stdin = strings.NewReader("from a pipe")
	require.Equal(t, "from a pipe", body(b.ok("enqueue", "jobs")))
	b.env.Stdin = strings.NewReader("from a pipe again")
	require.Equal(t, "from a pipe again", body(b.ok("enqueue", "jobs", "--payload-file=-")))

	b.env.Piped = false
	requireUsage(t, b.run("enqueue", "jobs").err, "give the body by --payload")
	requireUsage(t, b.run("enqueue", "jobs", "--payload-file=/nowhere").err, "no such file")
	requireUsage(t, b.run("enqueue", "jobs", "--payload=x", "--payload-file=y").err, "can't be used together")
}

func TestEnqueueTwiceWithAKeyIsOneMessage(t *testing.T) {
	b := serve(t)
	first := b.object("enqueue", "jobs", "--payload=x", "--idempotency-key=order-1", "--delay=1h")
	require.Equal(t, false, first["duplicate"])
	require.Equal(t, first["messageId"].(string)+" was there already and is pending\n",
		b.ok("enqueue", "jobs", "--payload=x", "--idempotency-key=order-1", "--delay=1h"))
	requireFailure(t, b.run("enqueue", "jobs", "--payload=y", "--idempotency-key=order-1").err, "IDEMPOTENCY_KEY_REUSED")
	require.Regexp(t, `ready in (59m|1h)`, b.ok("messages", "list", "jobs"))
	at := time.Now().Add(3 * time.Hour).UTC().Format(time.RFC3339)
	id := strings.TrimSpace(b.ok("enqueue", "jobs", "--payload=x", "--at", at))
	require.Regexp(t, id+` +pending +0/20 +\S+ +ready in 2h59m`, b.ok("messages", "list", "jobs"))
	requireUsage(t, b.run("enqueue", "jobs", "--payload=x", "--at=tomorrow").err, "want a time such as")
}

func TestAPayloadOverTheLimitIsTheServersToRefuse(t *testing.T) {
	b := serve(t)
	requireFailure(t, b.run("enqueue", "jobs", "--payload", strings.Repeat("x", 1<<20+1)).err, "PAYLOAD_TOO_LARGE")
	b.env.Stdin = &endless{}
	requireUsage(t, b.run("enqueue", "jobs").err, "more than 32 MiB")
}

// endless is standard input without an end.
type endless struct{}

func (*endless) Read(p []byte) (int, error) { return len(p), nil }

func TestMessagesErrors(t *testing.T) {
	b := serve(t)
	id := b.enqueue("x")
	requireUsage(t, b.run("messages", "list", "jobs", "--limit=0").err, "--limit: want 1 or more")
	requireUsage(t, b.run("messages", "list", "jobs", "--state=gone").err, `must be one of "pending"`)
	requireUsage(t, b.run("messages", "list", "jobs", "--payload").err, "pass -o json too")
	requireUsage(t, b.run("messages", "list", "jobs", "--since=-2h").err, "without a sign")
	requireFailure(t, b.run("messages", "list", "nowhere").err, "QUEUE_NOT_FOUND")
	requireFailure(t, b.run("messages", "list", "jobs", "--worker", strings.Repeat("w", 300)).err, "--worker (filter.worker_id): has 300 bytes")
	requireFailure(t, b.run("messages", "get", "jobs", "nonsense").err, "message_id: is not a message_id that a QueueBox server made")
	b.ok("queues", "create", "other")
	requireFailure(t, b.run("messages", "get", "other", id).err, "MESSAGE_NOT_FOUND); 'messages list' shows")
}

func TestTextForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 250 * time.Millisecond: "250ms", 1500 * time.Millisecond: "1.5s", 59 * time.Second: "59s", 90 * time.Second: "1m30s",
		time.Hour: "1h", 61 * time.Minute: "1h1m", 12 * time.Hour: "12h", 24 * time.Hour: "1d", 100 * time.Hour: "4d4h",
	} {
		require.Equal(t, want, span(d))
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -100: "-100", 1234567: "1,234,567"} {
		require.Equal(t, want, count(n))
	}
	require.Equal(t, `a\x1b\n\u202eb`+"\ufffd", harmless("a\x1b\n\u202eb\xff"))
	require.Equal(t, "héllo wörld ✓", harmless("héllo wörld ✓"))
	require.Equal(t, "abc…", cut("abcdef", 4))
}

func TestDocumentsAreStable(t *testing.T) {
	m := &queueboxv1.Message{MessageId: "m", Queue: "q", Attributes: map[string]string{"b": "2", "a": "1"}}
	first, err := document(m)
	require.NoError(t, err)
	require.NotContains(t, string(first), " ", "protojson varies its spaces from build to build")
	for range 20 {
		again, err := document(m)
		require.NoError(t, err)
		require.Equal(t, string(first), string(again))
	}
	require.Contains(t, string(first), fmt.Sprintf("%q:{%q:%q,%q:%q}", "attributes", "a", "1", "b", "2"))
}
