package storage_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// L2: whatever is asked for and whenever, no window sees more than rate * T + max(1, rate).
func TestL2NoWindowSeesMore(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, rate := range []float64{0.001, 0.3, 0.5, 1, 1.5, 3, 7.25, 10, 999.9, 1000, 123456} {
		b := storage.Bucket{Rate: rate}
		now := time.UnixMicro(1_900_000_000_000_000)
		type claim struct {
			at time.Time
			n  int
		}
		var claims []claim
		for range 400 {
			switch rnd.IntN(4) {
			case 0:
				now = now.Add(time.Duration(rnd.Int64N(int64(3e9 / rate))).Truncate(time.Microsecond))
			case 1:
				if next := b.Next(); next.After(now) {
					now = next.Add(time.Microsecond - 1).Truncate(time.Microsecond)
					require.Positive(t, b.Tokens(now), "rate %g: the next token is there when it is said", rate)
				}
			}
			n := min(b.Tokens(now), 1+rnd.IntN(20))
			// The claim itself happens a little after the look.
			now = now.Add(time.Duration(rnd.IntN(3)) * time.Microsecond)
			if n == 0 {
				continue
			}
			b = b.Take(now, n)
			claims = append(claims, claim{now, n})
		}
		require.Greater(t, len(claims), 50, "rate %g", rate)
		for i := range claims {
			sum := 0
			for j := i; j < len(claims); j++ {
				sum += claims[j].n
				window := claims[j].at.Sub(claims[i].at).Seconds()
				require.LessOrEqual(t, float64(sum), rate*window+max(1, rate)+1e-9, "rate %g: claims %d to %d", rate, i, j)
			}
		}
	}
}

func TestL2ABucketFillsUp(t *testing.T) {
	now := time.UnixMicro(1_900_000_000_000_000)
	b := storage.Bucket{}.At(10, now)
	require.Equal(t, 10, b.Tokens(now))
	b = b.Take(now, 10)
	require.Zero(t, b.Tokens(now))
	require.True(t, now.Add(100*time.Millisecond).Equal(b.Next()))
	require.Equal(t, 3, b.Tokens(now.Add(300*time.Millisecond)))
	require.Equal(t, 10, b.Tokens(now.Add(time.Hour)))

	slow := storage.Bucket{}.At(0.5, now)
	require.Equal(t, 1, slow.Tokens(now))
	slow = slow.Take(now, 1)
	require.Zero(t, slow.Tokens(now.Add(2*time.Second-time.Microsecond)))
	require.Equal(t, 1, slow.Tokens(now.Add(2*time.Second)))
}

// A rate that changes takes along the tokens that are missing, not the time for which the
// old rate made them wait.
func TestL2AnotherRate(t *testing.T) {
	now := time.UnixMicro(1_900_000_000_000_000)
	slow := storage.Bucket{}.At(0.01, now).Take(now, 1)
	require.Equal(t, slow, slow.At(0.01, now))
	require.Equal(t, 999, slow.At(1000, now).Tokens(now))
	fast := storage.Bucket{}.At(1000, now).Take(now, 1000)
	require.Zero(t, fast.At(0.01, now).Tokens(now))
	require.Equal(t, 1, fast.At(0.01, now.Add(time.Second)).Tokens(now.Add(time.Second)))
	// A clock that went back by an hour stops nobody for an hour.
	before := now.Add(-time.Hour)
	require.Equal(t, 1000, fast.At(1000, before).Tokens(before))
}
