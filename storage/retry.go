package storage

import (
	"math"
	"time"
)

// Backoff is the delay after an attempt; draw is from [0, 1). It lies in
// [(1-Jitter) * delay, delay], and a backend cuts it to the tick of its clock.
func (p RetryPolicy) Backoff(attempt int32, draw float64) time.Duration {
	d := float64(p.Min) * math.Pow(p.Multiplier, float64(attempt-1))
	// Not d > Max: the power may have become infinite, or not a number.
	if !(d <= float64(p.Max)) {
		d = float64(p.Max)
	}
	return time.Duration(d - d*p.Jitter*draw)
}
