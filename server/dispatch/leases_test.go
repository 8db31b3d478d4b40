package dispatch

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLeasesAgainstAMap does the same at random to a plain map.
func TestLeasesAgainstAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	base := time.Unix(1000, 0)
	var l leases
	model := map[int64]time.Time{}
	now := base
	for range 20_000 {
		position := rng.Int64N(400)
		switch rng.IntN(4) {
		case 0, 1:
			end := now.Add(time.Duration(rng.IntN(1000)) * time.Millisecond)
			l.set(position, end)
			model[position] = end
		case 2:
			l.drop(position)
			delete(model, position)
		default:
			now = now.Add(time.Duration(rng.IntN(50)) * time.Millisecond)
			ended := false
			for p, end := range model {
				if !end.After(now) {
					ended = true
					delete(model, p)
				}
			}
			require.Equal(t, ended, len(l.pop(now)) > 0)
		}
		require.Equal(t, len(model), l.len())
		require.LessOrEqual(t, len(l.heap), 2*len(model)+keepOver)
		var first time.Time
		for _, end := range model {
			if first.IsZero() || end.Before(first) {
				first = end
			}
		}
		require.Equal(t, first, l.next())
	}
}

func TestLeasesAreBounded(t *testing.T) {
	var l leases
	for i := range int64(maxLeases + 10) {
		l.set(i, time.Unix(i, 0))
	}
	require.Equal(t, maxLeases, l.len())
	l.set(5, time.Unix(1, 0))
	require.Equal(t, maxLeases, l.len())
}
