package storage

import (
	"math"
	"time"
)

// Limit is what kept messages back from a claim. L1, L2.
type Limit int

// The limits.
const (
	LimitNone Limit = iota
	// LimitInFlight: as many leases are live as the queue allows (L1).
	LimitInFlight
	// LimitRate: as many messages were claimed as the queue allows for now (L2).
	LimitRate
)

// Bucket holds the tokens of QueueSettings.MaxClaimsPerSecond, one for each claim. It has
// at most max(1, rate) of them, so that no window of length T sees more than rate * T +
// max(1, rate) claims (L2). What is rounded is rounded against the caller. It stands here
// so that all backends count alike; the zero Bucket is one from which nothing was taken.
type Bucket struct {
	// Rate at which it fills, tokens a second.
	Rate float64
	// Full is when it is full again, in nanoseconds since the epoch on the clock of the
	// database.
	Full int64
}

// span is how long the bucket takes from empty to full.
func (b Bucket) span() int64 { return int64(math.Ceil(float64(time.Second) * max(1, 1/b.Rate))) }

// debt is how far from full it is.
func (b Bucket) debt(now time.Time) int64 { return max(0, b.Full-now.UnixNano()) }

// At is the bucket at now for a queue whose rate may be another one by now: the tokens
// that are missing stay missing. Where more is missing than a bucket holds, the clock went
// back, and nobody waits until it has caught up.
func (b Bucket) At(rate float64, now time.Time) Bucket {
	out := Bucket{Rate: rate}
	if b.Rate <= 0 || b.debt(now) > b.span()+int64(time.Second) {
		return out
	}
	if out.Full = b.Full; rate != b.Rate {
		missing := min(math.Ceil(float64(b.debt(now))*b.Rate/rate), float64(out.span()))
		out.Full = now.UnixNano() + int64(missing)
	}
	return out
}

// Tokens tells how many claims may go at now.
func (b Bucket) Tokens(now time.Time) int {
	n := float64(max(0, b.span()-b.debt(now))) * b.Rate / float64(time.Second)
	return int(min(n, math.MaxInt32))
}

// Take is the bucket after n claims at now, the time of the last of them.
func (b Bucket) Take(now time.Time, n int) Bucket {
	b.Full = max(b.Full, now.UnixNano()) + int64(math.Ceil(float64(n)*float64(time.Second)/b.Rate))
	return b
}

// Next is when it holds a whole token again.
func (b Bucket) Next() time.Time {
	each := int64(math.Ceil(float64(time.Second) / b.Rate))
	return time.Unix(0, b.Full-b.span()+each).UTC()
}
