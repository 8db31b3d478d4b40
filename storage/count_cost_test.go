package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestL3ACountRestsForWhatItCostAndNotForAHang(t *testing.T) {
	now := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	rest := func(laps ...time.Duration) time.Duration {
		var c CountCost
		at := now
		c.Lap(at)
		for _, d := range laps {
			at = at.Add(d)
			c.Lap(at)
		}
		return c.Rest()
	}
	require.Equal(t, CountEvery, rest(time.Millisecond))
	require.Equal(t, CountRest*600*time.Millisecond, rest(200*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond))
	require.LessOrEqual(t, rest(time.Millisecond, 9*time.Second, time.Millisecond), 6*time.Second, "the database hung")
}
