package blackbox

import "time"

// over counts the durations above a limit.
func over(all []time.Duration, limit time.Duration) int {
	n := 0
	for _, d := range all {
		if d > limit {
			n++
		}
	}
	return n
}
