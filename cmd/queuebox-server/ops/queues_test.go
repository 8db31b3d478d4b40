package ops

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

func TestQueuesFromMakingToPausing(t *testing.T) {
	b := serve(t)
	made := b.object("queues", "create", "jobs", "--lease=45s", "--max-attempts=3", "--retry-min=2s")
	require.Equal(t, "jobs", made["queue"])
	require.Equal(t, "45000", made["defaultLeaseMs"])
	require.InDelta(t, 3, made["maxAttempts"], 0)
	require.Equal(t, "2000", made["retryPolicy"].(map[string]any)["minBackoffMs"])
	require.Equal(t, false, made["paused"], "fields at their zero value are there")

	require.Contains(t, b.ok("queues", "get", "jobs"), "lease           45s (1s to 12h)\n")
	require.Regexp(t, `(?m)^QUEUE +STATE +LEASE.*\njobs +active +45s +3 +2s to 1h `, b.ok("queues", "list"))

	require.Contains(t, b.ok("queues", "pause", "jobs"), "jobs is paused")
	require.Equal(t, true, b.object("queues", "get", "jobs")["paused"])
	require.Contains(t, b.ok("queues", "list"), "paused")
	require.Contains(t, b.ok("queues", "resume", "jobs"), "jobs is active")
	require.Equal(t, true, b.object("queues", "pause", "jobs")["paused"])
	require.Equal(t, false, b.object("queues", "resume", "jobs")["paused"])
}

func TestUpdateLeavesWhatIsNotGiven(t *testing.T) {
	b := serve(t)
	b.ok("queues", "create", "jobs", "--retry-min=2s", "--retry-max=20m", "--retry-jitter=0.5", "--max-attempts=7")
	changed := b.object("queues", "update", "jobs", "--retry-max=30m", "--dead-retention=72h")
	policy := changed["retryPolicy"].(map[string]any)
	require.Equal(t, "2000", policy["minBackoffMs"], "the part of the policy that was not given is left")
	require.Equal(t, "1800000", policy["maxBackoffMs"])
	require.InDelta(t, 0.5, policy["jitter"], 0)
	require.InDelta(t, 7, changed["maxAttempts"], 0)
	require.Equal(t, "259200000", changed["deadRetentionMs"])
	require.Contains(t, b.ok("queues", "get", "jobs"), "dead kept       3d\n")
	require.InDelta(t, 0, b.object("queues", "update", "jobs", "--max-attempts=0")["maxAttempts"], 0, "zero is a value")
}

func TestLimitsAndOrderingOfAQueue(t *testing.T) {
	b := serve(t)
	b.ok("queues", "create", "jobs", "--ordering=block-on-dead", "--max-in-flight=1000", "--max-claims-per-second=2.5")
	text := b.ok("queues", "get", "jobs")
	require.Contains(t, text, "ordering        block-on-dead\n")
	require.Contains(t, text, "max in flight   1,000\n")
	require.Contains(t, text, "max claims      2.5/s\n")
	text = b.ok("queues", "update", "jobs", "--ordering=skip-dead", "--max-in-flight=0")
	require.Contains(t, text, "ordering        skip-dead\n")
	require.Contains(t, text, "max in flight   none\n")
	require.Contains(t, text, "max claims      2.5/s\n")
}

func TestUpdateIsGuardedByTheEtag(t *testing.T) {
	b := serve(t)
	etag := b.object("queues", "create", "jobs")["etag"].(string)
	b.ok("queues", "update", "jobs", "--max-attempts=4", "--etag", etag)
	for _, setting := range []string{"--max-attempts=5", "--retry-min=5s"} {
		got := b.run("queues", "update", "jobs", setting, "--etag", etag)
		requireFailure(t, got.err, "ETAG_MISMATCH")
		require.ErrorContains(t, got.err, "'queues get' shows")
	}
	require.InDelta(t, 4, b.object("queues", "get", "jobs")["maxAttempts"], 0)
}

// Two operators who change parts of the retry policy at the same time both get what they asked for.
func TestPartsOfThePolicyAreNotLostToEachOther(t *testing.T) {
	b := serve(t)
	b.ok("queues", "create", "jobs")
	done := make(chan error, 2)
	for _, setting := range []string{"--retry-min=3s", "--retry-jitter=0.7"} {
		go func() { done <- b.run("queues", "update", "jobs", setting).err }()
	}
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	policy := b.object("queues", "get", "jobs")["retryPolicy"].(map[string]any)
	require.Equal(t, "3000", policy["minBackoffMs"])
	require.InDelta(t, 0.7, policy["jitter"], 0)
}

// Every setting of the wire has a flag, and each flag sets its field and no other.
func TestEverySettingHasAFlag(t *testing.T) {
	fields := map[string]bool{}
	for _, s := range settingFlags() {
		fields[s.field] = true
	}
	d := (&queueboxv1.Queue{}).ProtoReflect().Descriptor().Fields()
	for i := range d.Len() {
		switch name := string(d.Get(i).Name()); name {
		case "queue", "paused", "create_time", "etag": // no settings, or a command of their own
		case "retry_policy":
			p := d.Get(i).Message().Fields()
			for k := range p.Len() {
				require.True(t, fields["retry_policy."+string(p.Get(k).Name())], "no flag sets %s", p.Get(k).Name())
			}
		default:
			require.True(t, fields[name], "no flag sets %s", name)
		}
	}

	values := map[string]string{"ordering": "block-on-dead", "retry-multiplier": "3", "retry-jitter": "0.3", "max-claims-per-second": "2.5"}
	for _, s := range settingFlags() {
		value := "7"
		if given, ok := values[s.flag]; ok {
			value = given
		} else if strings.HasSuffix(s.field, "_ms") {
			value = "7s"
		}
		var c Commands
		p, err := kong.New(&c)
		require.NoError(t, err)
		_, err = p.Parse([]string{"queues", "create", "jobs", "--" + s.flag, value})
		require.NoError(t, err, s.flag)
		q := &queueboxv1.Queue{}
		paths, err := c.Queues.Create.apply(q)
		require.NoError(t, err)
		require.Equal(t, []string{s.path}, paths)
		set := 0
		q.ProtoReflect().Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
			set++
			return true
		})
		require.Equal(t, 1, set, s.flag)
		require.True(t, q.ProtoReflect().Has(d.ByName(protoreflect.Name(s.path))), s.flag)
	}
}

func TestStatsOfOneAndOfAll(t *testing.T) {
	b := serve(t)
	b.fill(3)
	b.claim()
	b.ok("queues", "create", "empty")
	b.counted()
	st := b.object("queues", "stats", "jobs")
	require.Equal(t, "jobs", st["queue"])
	require.Equal(t, "2", st["readyCount"])
	require.Equal(t, "1", st["leasedCount"])
	require.Equal(t, "0", st["deadCount"])
	all := b.objects("queues", "stats")
	require.Len(t, all, 2)
	text := b.ok("queues", "stats")
	require.Regexp(t, `(?m)^jobs +2 +0 +0 +1 +0 +0 +0 `, text)
	require.Regexp(t, `(?m)^empty +0 +0 +0 +0 +0 +0 +0 +- +0$`, text)
	requireFailure(t, b.run("queues", "stats", "jobs", "nowhere").err, `queue "nowhere": there is no such queue`)
}

func TestWatchIsALineALookAndEndsByInterrupt(t *testing.T) {
	b := serve(t)
	b.fill(2)
	b.counted()
	got := b.objects("watch", "jobs", "--every=10ms", "--count=3")
	require.Len(t, got, 3)
	for _, o := range got {
		require.Equal(t, "jobs", o["queue"])
		require.Equal(t, "2", o["readyCount"])
	}
	text := b.ok("watch", "--every=10ms", "--count=2")
	require.Regexp(t, `^TIME +QUEUE +READY .*\n(\d\d:\d\d:\d\d +jobs +2 .*\n){2}$`, text)

	b.env.Begin = func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), 100*time.Millisecond)
	}
	require.NoError(t, b.run("watch", "--every=10ms").err, "an interrupt is how it ends")
	requireUsage(t, b.run("watch", "--every=0").err, "--every")
}

func TestWatchOutlivesARestart(t *testing.T) {
	looks := 0
	b := serveFake(t, &fake{stats: func() (*queueboxv1.GetQueueStatsResponse, error) {
		if looks++; looks == 2 || looks == 3 {
			return nil, unavailable(t)
		}
		return &queueboxv1.GetQueueStatsResponse{ReadyCount: int64(looks)}, nil
	}})
	got := b.run("watch", "jobs", "--every=10ms", "--count=5", "-o", "json")
	require.NoError(t, got.err)
	require.Len(t, objects(t, got.stdout), 3)
	require.Equal(t, 1, strings.Count(got.stderr, "(DRAINING); going on\n"))
	require.Contains(t, got.stderr, b.addr+" answers again\n")
}

func TestQueuesErrors(t *testing.T) {
	b := serve(t)
	requireFailure(t, b.run("queues", "get", "nowhere").err, "QUEUE_NOT_FOUND); 'queues list' shows")
	b.ok("queues", "create", "jobs")
	requireFailure(t, b.run("queues", "create", "jobs").err, "QUEUE_EXISTS")
	requireFailure(t, b.run("queues", "update", "jobs", "--min-lease=2h", "--max-lease=1h").err, "--min-lease (queue.min_lease_ms): is 7200000; it must lie between")
	requireUsage(t, b.run("queues", "update", "jobs").err, "at least one setting")
	requireUsage(t, b.run("queues", "create", "x", "--lease=1500us").err, "--lease: want whole milliseconds")
	requireUsage(t, b.run("queues", "create", "x", "--lease=-1s").err, "--lease: is negative")
	requireUsage(t, b.run("queues", "create", "x", "--ordering=none").err, `must be one of "skip-dead","block-on-dead"`)
	requireUsage(t, b.run("queues", "get").err, "<queue>")
}
