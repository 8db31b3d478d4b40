package server

import (
	"encoding/base64"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// The widest limits that a queue may set.
const (
	leaseFloor     = time.Millisecond
	leaseCeiling   = 7 * 24 * time.Hour
	retentionFloor = 10 * time.Minute
	maxMultiplier  = 10
	// One claim a day, and more than a database does.
	minClaimRate = 1e-5
	maxClaimRate = 1e6
)

// checkSettings checks what an operator configured, in the words of Go.
func checkSettings(what string, s storage.QueueSettings) error {
	c := &check{}
	c.settings(s)
	if len(c.violations) == 0 {
		return nil
	}
	return errors.New(what + ": " + c.violations[0].field + " " + c.violations[0].text)
}

// settings checks the settings of a queue after defaults were filled in.
func (c *check) settings(s storage.QueueSettings) {
	if s.MinLease < leaseFloor || s.MinLease > s.MaxLease {
		c.wrong("min_lease_ms", "is %d; it must lie between 1 and max_lease_ms (%d)", s.MinLease.Milliseconds(), s.MaxLease.Milliseconds())
	}
	if s.MaxLease > leaseCeiling {
		c.wrong("max_lease_ms", "is %d; at most 7 days are allowed", s.MaxLease.Milliseconds())
	}
	if s.DefaultLease < s.MinLease || s.DefaultLease > s.MaxLease {
		c.wrong("default_lease_ms", "is %d; it must lie between min_lease_ms (%d) and max_lease_ms (%d)",
			s.DefaultLease.Milliseconds(), s.MinLease.Milliseconds(), s.MaxLease.Milliseconds())
	}
	if s.MaxAttempts < 0 {
		c.wrong("max_attempts", "is negative; 0 means no limit")
	}
	c.within("retry_policy.", func() { c.retryPolicy(s.Retry) })
	if s.CompletedRetention < retentionFloor {
		c.wrong("completed_retention_ms", "is %d; less than 10 minutes is refused", s.CompletedRetention.Milliseconds())
	}
	if s.DeadRetention < 0 {
		c.wrong("dead_retention_ms", "is negative; 0 means for ever")
	}
	if s.MaxInFlight < 0 {
		c.wrong("max_in_flight", "is negative; 0 means no limit")
	}
	if r := s.MaxClaimsPerSecond; r != 0 && !(r >= minClaimRate && r <= maxClaimRate) {
		c.wrong("max_claims_per_second", "is %g; it must lie between %g and %g, or be 0, which means no limit", r, minClaimRate, maxClaimRate)
	}
	if s.MaxMessages < 0 {
		c.wrong("max_messages", "is negative; 0 means no limit")
	}
}

func (c *check) retryPolicy(r storage.RetryPolicy) {
	if r.Min < 0 || r.Min > r.Max {
		c.wrong("min_backoff_ms", "is %d; it must lie between 0 and max_backoff_ms (%d)", r.Min.Milliseconds(), r.Max.Milliseconds())
	}
	if math.IsNaN(r.Multiplier) || r.Multiplier < 1 || r.Multiplier > maxMultiplier {
		c.wrong("multiplier", "is %g; it must lie between 1 and %d", r.Multiplier, maxMultiplier)
	}
	if math.IsNaN(r.Jitter) || r.Jitter < 0 || r.Jitter > 1 {
		c.wrong("jitter", "is %g; it must lie between 0 and 1", r.Jitter)
	}
}

// queueField copies one setting from the wire into the settings, with the default
// where zero stands for one.
type queueField struct {
	path string
	set  func(c *check, s *storage.QueueSettings, q *queueboxv1.Queue, d storage.QueueSettings)
}

// queueFields are the settings by the path that an update mask names.
func queueFields() []queueField {
	ms := func(path string, get func(*queueboxv1.Queue) int64, to func(*storage.QueueSettings) *time.Duration) queueField {
		return queueField{path, func(c *check, s *storage.QueueSettings, q *queueboxv1.Queue, d storage.QueueSettings) {
			v := c.delay(path, get(q))
			if get(q) == 0 {
				v = *to(&d)
			}
			*to(s) = v
		}}
	}
	return []queueField{
		{"paused", func(_ *check, s *storage.QueueSettings, q *queueboxv1.Queue, _ storage.QueueSettings) {
			s.Paused = q.GetPaused()
		}},
		ms("default_lease_ms", (*queueboxv1.Queue).GetDefaultLeaseMs, func(s *storage.QueueSettings) *time.Duration { return &s.DefaultLease }),
		ms("min_lease_ms", (*queueboxv1.Queue).GetMinLeaseMs, func(s *storage.QueueSettings) *time.Duration { return &s.MinLease }),
		ms("max_lease_ms", (*queueboxv1.Queue).GetMaxLeaseMs, func(s *storage.QueueSettings) *time.Duration { return &s.MaxLease }),
		{"max_attempts", func(_ *check, s *storage.QueueSettings, q *queueboxv1.Queue, _ storage.QueueSettings) {
			s.MaxAttempts = q.GetMaxAttempts()
		}},
		{"retry_policy", func(c *check, s *storage.QueueSettings, q *queueboxv1.Queue, d storage.QueueSettings) {
			c.within("retry_policy.", func() { s.Retry = retryPolicy(c, q.GetRetryPolicy(), d.Retry) })
		}},
		{"max_in_flight", func(_ *check, s *storage.QueueSettings, q *queueboxv1.Queue, _ storage.QueueSettings) {
			s.MaxInFlight = q.GetMaxInFlight()
		}},
		{"max_claims_per_second", func(_ *check, s *storage.QueueSettings, q *queueboxv1.Queue, _ storage.QueueSettings) {
			s.MaxClaimsPerSecond = q.GetMaxClaimsPerSecond()
		}},
		{"ordering_mode", func(c *check, s *storage.QueueSettings, q *queueboxv1.Queue, _ storage.QueueSettings) {
			s.Ordering = orderingMode(c, q.GetOrderingMode())
		}},
		ms("completed_retention_ms", (*queueboxv1.Queue).GetCompletedRetentionMs, func(s *storage.QueueSettings) *time.Duration { return &s.CompletedRetention }),
		{"dead_retention_ms", func(c *check, s *storage.QueueSettings, q *queueboxv1.Queue, _ storage.QueueSettings) {
			s.DeadRetention = c.delay("dead_retention_ms", q.GetDeadRetentionMs())
		}},
		{"max_messages", func(_ *check, s *storage.QueueSettings, q *queueboxv1.Queue, _ storage.QueueSettings) {
			s.MaxMessages = q.GetMaxMessages()
		}},
	}
}

func orderingMode(c *check, mode queueboxv1.OrderingMode) storage.OrderingMode {
	switch mode {
	case queueboxv1.OrderingMode_ORDERING_MODE_UNSPECIFIED, queueboxv1.OrderingMode_ORDERING_MODE_SKIP_DEAD:
		return storage.OrderingSkipDead
	case queueboxv1.OrderingMode_ORDERING_MODE_BLOCK_ON_DEAD:
		return storage.OrderingBlockOnDead
	}
	c.wrong("ordering_mode", "is no value of OrderingMode")
	return storage.OrderingSkipDead
}

// retryPolicy reads a policy. Zero backoffs and a zero multiplier take the default; a
// zero jitter means none, where the policy is given at all.
func retryPolicy(c *check, p *queueboxv1.RetryPolicy, d storage.RetryPolicy) storage.RetryPolicy {
	if p == nil {
		return d
	}
	out := storage.RetryPolicy{
		Min: c.delay("min_backoff_ms", p.GetMinBackoffMs()), Max: c.delay("max_backoff_ms", p.GetMaxBackoffMs()),
		Multiplier: p.GetMultiplier(), Jitter: p.GetJitter(),
	}
	if p.GetMaxBackoffMs() == 0 {
		out.Max = max(d.Max, out.Min)
	}
	if p.GetMinBackoffMs() == 0 {
		out.Min = min(d.Min, out.Max)
	}
	if out.Multiplier == 0 {
		out.Multiplier = d.Multiplier
	}
	return out
}

func wireQueue(q storage.Queue) *queueboxv1.Queue {
	return &queueboxv1.Queue{
		Queue:          q.Name,
		Paused:         q.Paused,
		DefaultLeaseMs: q.DefaultLease.Milliseconds(),
		MinLeaseMs:     q.MinLease.Milliseconds(),
		MaxLeaseMs:     q.MaxLease.Milliseconds(),
		MaxAttempts:    q.MaxAttempts,
		RetryPolicy: &queueboxv1.RetryPolicy{
			MinBackoffMs: q.Retry.Min.Milliseconds(), MaxBackoffMs: q.Retry.Max.Milliseconds(),
			Multiplier: q.Retry.Multiplier, Jitter: q.Retry.Jitter,
		},
		MaxInFlight:          q.MaxInFlight,
		MaxClaimsPerSecond:   q.MaxClaimsPerSecond,
		OrderingMode:         queueboxv1.OrderingMode(q.Ordering),
		CompletedRetentionMs: q.CompletedRetention.Milliseconds(),
		DeadRetentionMs:      q.DeadRetention.Milliseconds(),
		CreateTime:           stamp(q.CreateTime),
		Etag:                 etag(q.Version),
		MaxMessages:          q.MaxMessages,
	}
}

// etag is the version of a queue, opaque to clients.
func etag(version int64) string { return "v" + strconv.FormatInt(version, 10) }

// etag reads one; 0 where it is empty.
func (c *check) etag(field, s string) int64 {
	if s == "" {
		return 0
	}
	digits, ok := strings.CutPrefix(s, "v")
	version, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || version < 1 || etag(version) != s {
		c.wrong(field, "is not an etag that a QueueBox server made; give back the one that was read, or none")
		return 0
	}
	return version
}

// Pages of queues go on after a name. The token holds it in a form that nobody takes
// for a name.
func queuePageToken(name string) string {
	return "q" + base64.RawURLEncoding.EncodeToString([]byte(name))
}

func (c *check) queuePageToken(field, s string) string {
	if s == "" {
		return ""
	}
	enc, ok := strings.CutPrefix(s, "q")
	name, err := base64.RawURLEncoding.Strict().DecodeString(enc)
	if !ok || err != nil || len(name) == 0 || len(name) > maxNameBytes || queuePageToken(string(name)) != s {
		c.wrong(field, "is not a page_token that a QueueBox server made; give back the one of the page before")
		return ""
	}
	c.text(field, string(name))
	return string(name)
}

// pageSize reads the size of a page.
func (c *check) pageSize(field string, n int32) int {
	switch {
	case n < 0:
		c.wrong(field, "is negative")
	case n == 0:
		return defaultPage
	case n > maxPage:
		return maxPage
	}
	return int(n)
}

const (
	defaultPage = 100
	maxPage     = 1000
)
