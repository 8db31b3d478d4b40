package queuebox

import (
	"math/rand/v2"
	"time"
)

// now is the clock of the local deadline and of nothing else: only differences of its monotonic
// reading are used, and none is ever compared with a time of the server.
func now() time.Time {
	return time.Now() //nolint:forbidigo // a lease is counted down on the local monotonic clock (K2)
}

// jittered draws from the upper part of d: between (1-part)*d and d.
func jittered(d time.Duration, part float64) time.Duration {
	return d - time.Duration(float64(d)*part*rand.Float64()) //nolint:gosec // spreads load, guards nothing
}

// pauses grow from base to limit by doubling.
type pauses struct {
	base, limit time.Duration
	failures    int
}

// next returns the pause after one more failure, never shorter than the server asked for.
func (p *pauses) next(asked time.Duration) time.Duration {
	pause := p.limit
	if p.failures < 30 {
		pause = min(p.base<<p.failures, p.limit)
	}
	p.failures++
	return max(jittered(pause, 0.5), asked)
}
