package storage

import "time"

// countLap bounds what one statement of a count counts for: none takes as long where it is not
// held up, for each looks at a bounded number of rows.
const countLap = 250 * time.Millisecond

// CountCost adds up what a count of everything costs the database, so that all backends that
// count by many small statements rest alike. A statement that the database, or somebody's lock,
// has held up says nothing about what the next count costs: twenty times a hang of some seconds
// would leave the counts minutes old (L3).
type CountCost struct {
	last time.Time
	sum  time.Duration
}

// Lap notes that another statement has ended, or, the first time, that the first one begins.
// What lies between two calls is one statement or a few.
func (c *CountCost) Lap(now time.Time) {
	if !c.last.IsZero() {
		c.sum += min(now.Sub(c.last), countLap)
	}
	c.last = now
}

// Rest is how long nobody counts after it.
func (c *CountCost) Rest() time.Duration { return max(CountEvery, CountRest*c.sum) }
