package postgres

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// index is one in memory, of which all that ever died keeps its entry.
type index struct{ live, dead places }

// places are in order.
type places []storage.Ref

func (p *places) add(r storage.Ref) (added bool) {
	i, found := slices.BinarySearchFunc(*p, r, compareRefs)
	if !found {
		*p = slices.Insert(*p, i, r)
	}
	return !found
}

// take removes one at random.
func (p *places) take(rng *rand.Rand) storage.Ref {
	i := rng.IntN(len(*p))
	r := (*p)[i]
	*p = slices.Delete(*p, i, i+1)
	return r
}

func (p places) in(s stretch) places {
	from, _ := slices.BinarySearchFunc(p, s.from, compareRefs)
	to, _ := slices.BinarySearchFunc(p, s.to, compareRefs)
	return p[from:max(from, to)]
}

// read gives what lives in a part, up to limit, and how long that takes: a microsecond an entry.
func (x *index) read(p stretch, limit int) (rows places, took time.Duration) {
	rows = slices.Clone(x.live.in(p))
	if len(rows) > limit {
		rows = rows[:limit]
	}
	if len(rows) == limit && limit > 0 {
		p.to = rows[limit-1]
	}
	return rows, time.Duration(len(x.dead.in(p))+len(rows)) * time.Microsecond
}

// C18: at random, messages of three queues come and go while everything that died stays in the index, and
// some come back to an old position. A pass each second sees every one that lives soon, and does not walk
// over more and more of those that died.
func TestC18StretchesHideNothingForLong(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 18))
			var (
				s        = newStretches()
				x        index
				seen     = map[storage.Ref]time.Time{} // since when a row lives that no pass has met since
				now      = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
				position int64
				longest  time.Duration // of a pass in the second minute
			)
			s.costly = time.Millisecond
			live := func(r storage.Ref) {
				if x.live.add(r) {
					seen[r] = now
				}
			}
			for second := range 120 {
				now = now.Add(time.Second)
				for range 200 {
					position += 2
					r := storage.Ref{QueueID: 1 + rng.Int32N(3), Position: position}
					if rng.IntN(100) == 0 {
						live(r)
					} else {
						x.dead.add(r)
					}
				}
				if len(x.live) > 40 {
					r := x.live.take(rng)
					x.dead.add(r)
					delete(seen, r)
				}
				if rng.IntN(5) == 0 {
					live(x.dead.take(rng))
				}
				var pass time.Duration
				met := func(rows places) {
					for _, r := range rows {
						delete(seen, r)
					}
				}
				for spent := time.Duration(0); spent < lookTime; {
					piece, ok := s.again(now)
					if !ok {
						break
					}
					rows, took := x.read(piece, 10)
					met(rows)
					s.looked(piece, rows, len(rows) == 10, took)
					spent += max(took, lookTime/lookPieces)
					pass += took
				}
				for last := (storage.Ref{}); ; {
					parts := s.parts(last)
					var rows places
					var took time.Duration
					for _, p := range parts {
						more, n := x.read(p, 10-len(rows))
						rows, took = append(rows, more...), took+n
						if len(rows) == 10 {
							break
						}
					}
					met(rows)
					newest := int64(0)
					for _, r := range rows {
						newest = max(newest, r.Position)
					}
					s.met(now, parts, newest, rows, len(rows) == 10, took)
					pass += took
					if len(rows) < 10 {
						break
					}
					last = rows[9]
				}
				for r, since := range seen {
					require.Less(t, now.Sub(since), time.Minute, "%v at second %d", r, second)
				}
				for i := range s.empty {
					require.Negative(t, compareRefs(s.empty[i].from, s.empty[i].to))
					require.True(t, i == 0 || compareRefs(s.empty[i-1].to, s.empty[i].from) <= 0, "in order")
				}
				if second >= 60 {
					longest = max(longest, pass)
				}
			}
			require.NotEmpty(t, s.empty)
			t.Logf("%d dead, a pass takes %s at most, %d stretches", len(x.dead), longest, len(s.empty))
			require.Less(t, longest, lookTime+10*time.Millisecond)
		})
	}
}

// C18, W7: a stretch reaches up to no place at which a row was met first a moment ago: beside that row
// others may be about to commit. Later it does.
func TestC18AStretchEndsBeforeWhatIsNew(t *testing.T) {
	s := newStretches()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	met := func(positions ...int64) {
		var rows []storage.Ref
		for _, p := range positions {
			rows = append(rows, storage.Ref{QueueID: 1, Position: p})
		}
		s.met(now, s.parts(storage.Ref{}), positions[len(positions)-1], rows, false, 0)
	}
	met(2)
	now = now.Add(stretchLag - time.Millisecond)
	met(2, 10*wide)
	now = now.Add(time.Millisecond)
	met(2)
	require.Empty(t, s.empty)
	now = now.Add(stretchLag - time.Millisecond)
	met(2)
	require.Empty(t, s.empty)
	now = now.Add(time.Millisecond)
	met(2)
	require.NotEmpty(t, s.empty)
	last := s.empty[len(s.empty)-1].stretch
	require.Equal(t, stretch{storage.Ref{QueueID: 1, Position: 3}, storage.Ref{QueueID: 1, Position: 10 * wide}}, last)
}
