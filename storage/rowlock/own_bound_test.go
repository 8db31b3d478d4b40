package rowlock

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// E12, W7: the start of a scan passes what is gone, and never a row that is there or was on its
// way a moment ago.
func TestE12_TheStartOfAScanPassesNoRow(t *testing.T) {
	at := time.Now()
	b := newOwnBound()
	b.now = func() time.Time { return at }
	require.Zero(t, b.start(), "the first scan starts at the beginning")
	b.saw(5, 9)
	move := func(first int64, some bool) int64 {
		at = at.Add(ownMove)
		_, due := b.due()
		require.True(t, due)
		_, due = b.due()
		require.False(t, due, "once in a while")
		b.move(first, some)
		return b.from
	}
	require.Zero(t, move(5, true), "one look says nothing of what was on its way")
	require.EqualValues(t, 5, move(9, true))
	require.EqualValues(t, 9, move(0, false), "behind all that were seen, but not beyond the look before")
	require.EqualValues(t, 10, move(0, false))
	require.EqualValues(t, 10, b.start())
	at = at.Add(ownRescan)
	require.Zero(t, b.start(), "from the beginning, once in a while")
	require.EqualValues(t, 10, b.start())
	b.saw(3, 12)
	require.EqualValues(t, 3, b.start(), "a row that was hidden")
	require.EqualValues(t, 10, move(13, true))
}

// The same at random: rows are drawn, inserted, committed out of order, or rolled back.
func TestE12_TheStartOfAScanAtRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	b := newOwnBound()
	at := time.Now()
	b.now = func() time.Time { return at }
	b.start()
	type row struct{ committed bool }
	rows := map[int64]*row{}
	var next int64
	lowest := func(want func(*row) bool) (id int64, some bool) {
		for i, r := range rows {
			if want(r) && (!some || i < id) {
				id, some = i, true
			}
		}
		return id, some
	}
	for range 20_000 {
		switch random.IntN(4) {
		case 0:
			next++
			rows[next] = &row{committed: random.IntN(3) > 0}
		case 1: // somebody commits or rolls back, late
			for id, r := range rows {
				if !r.committed && random.IntN(10) == 0 {
					r.committed = true
					if random.IntN(2) == 0 {
						delete(rows, id)
					}
				}
			}
		case 2: // a scan, whose rows are placed
			from := b.start()
			if id, some := lowest(func(r *row) bool { return r.committed }); some {
				require.GreaterOrEqual(t, id, from, "a committed row is hidden")
				var last int64
				for i, r := range rows {
					if r.committed {
						last = max(last, i)
						delete(rows, i)
					}
				}
				b.saw(id, last)
			}
		case 3: // the look meets a row that somebody has locked, and the start stays
			at = at.Add(time.Second)
			if _, due := b.due(); due {
				id, some := lowest(func(*row) bool { return true })
				if !some || rows[id].committed {
					b.move(id, some)
				}
			}
		}
	}
	require.Positive(t, b.from)
}
