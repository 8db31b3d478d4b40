package server

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/faults"
)

func TestEnds_C18_OnlyThoseThatEndTheirMessage(t *testing.T) {
	start := time.Unix(1000, 0)
	db := start.Add(time.Hour) // another clock than the local one
	e := newEnds()
	ref := func(n int64) storage.Ref { return storage.Ref{QueueID: 1, Position: n} }
	claim := func(n int64, attempt, most int32, lease time.Duration, expire time.Time) storage.Claimed {
		return storage.Claimed{Message: storage.Message{
			Ref: ref(n), Attempt: attempt, MaxAttempts: most, LeaseEnd: db.Add(lease), ExpireTime: expire,
		}}
	}
	e.claimed([]storage.Claimed{
		claim(1, 2, 2, 2*time.Second, time.Time{}),
		claim(2, 1, 2, time.Second, time.Time{}),
		claim(3, 1, 0, time.Second, time.Time{}),
		claim(4, 1, 2, time.Second, db.Add(time.Second)),
		claim(5, 1, 2, time.Second, db.Add(2*time.Second)),
		claim(6, 1, 1, time.Second, time.Time{}),
		claim(7, 1, 1, time.Second, time.Time{}),
	}, db, start)
	e.renewed(ref(2), start.Add(3*time.Second), false)
	e.renewed(ref(3), start.Add(3*time.Second), true)
	e.renewed(ref(6), start.Add(5*time.Second), false)
	e.drop(ref(7))

	over, next := e.take(start.Add(time.Second-1), 10)
	require.Empty(t, over)
	require.Equal(t, start.Add(time.Second), next)
	over, next = e.take(start.Add(time.Second), 10)
	require.Equal(t, []storage.Ref{ref(4)}, over)
	require.Equal(t, start.Add(2*time.Second), next)
	over, _ = e.take(start.Add(4*time.Second), 1)
	require.Equal(t, []storage.Ref{ref(1)}, over, "not more than the limit")
	over, next = e.take(start.Add(4*time.Second), 10)
	require.Equal(t, []storage.Ref{ref(3)}, over, "one that was cancelled")
	require.Equal(t, start.Add(5*time.Second), next, "one that was renewed")
	over, next = e.take(start.Add(5*time.Second), 10)
	require.Equal(t, []storage.Ref{ref(6)}, over)
	require.Zero(t, next)
	require.Empty(t, e.by)
}

func TestUpkeep_C18_ASweepThatFailsIsTriedAgainAndToldOnce(t *testing.T) {
	h := serve(t, func(c *Config) { c.QueueDefaults.MinLease = time.Millisecond })
	h.faults.Inject(faults.Sweep, faults.Fault{Refuse: true})
	out, err := h.Enqueue(h.ctx(), &queueboxv1.EnqueueRequest{Queue: "q", MaxAttempts: 1})
	require.NoError(t, err)
	_, err = h.Claim(h.ctx(), &queueboxv1.ClaimRequest{Queue: "q", LeaseMs: 10})
	require.NoError(t, err)
	before := h.faults.Calls(faults.Sweep)
	require.Eventually(t, func() bool { return h.faults.Calls(faults.Sweep) >= before+2 }, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, 1, strings.Count(h.log.String(), "upkeep failed"))
	h.faults.Clear(faults.Sweep)
	require.Eventually(t, func() bool {
		m, err := h.GetMessage(h.ctx(), &queueboxv1.GetMessageRequest{Queue: "q", MessageId: out.GetMessageId()})
		return err == nil && m.GetMessage().GetDeadReason() == queueboxv1.DeadReason_DEAD_REASON_LEASE_EXPIRED
	}, 20*time.Second, 20*time.Millisecond)
	require.Contains(t, h.scrape(), `queuebox_swept_total{outcome="lease_expired"} 1`)
	require.Contains(t, h.scrape(), `queuebox_swept_total{outcome="expired"} 0`)
}
