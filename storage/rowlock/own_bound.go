package rowlock

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qOwnIncomingFirst statement = "own_incoming_first"
	qOwnMarkedFirst   statement = "own_marked_first"
)

const (
	// ownMove is how often the start of a scan is moved. It is far longer than a row is on its
	// way between the drawing of its id and its insert.
	ownMove = 5 * time.Second
	// ownRescan is how often a scan starts at the beginning, for a row whose insert waited longer
	// than that, and after a failover that lost commits (W7).
	ownRescan = 30 * time.Second
)

// ownBound is where a scan of incoming or marked starts. Rows that are gone cost every scan that
// walks over them, as long as somebody's snapshot keeps them from being removed for good:
// 150,000 of them 20 ms. Ids are drawn before the commit, so a row may come behind the start; but
// until it is committed or rolled back it is there and locked, and the look for the first
// row meets it.
type ownBound struct {
	mu sync.Mutex
	// from is the start; before is the first row that the look before the last one found, and
	// last the largest id that a scan has seen.
	from, before, last int64
	moved, rescanned   time.Time
	now                func() time.Time
}

func newOwnBound() *ownBound {
	return &ownBound{now: time.Now} //nolint:forbidigo // measures pauses; it is never compared with a column
}

// start is where the next scan starts.
func (b *ownBound) start() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.now(); at.Sub(b.rescanned) >= ownRescan {
		b.rescanned = at
		return 0
	}
	return b.from
}

// saw takes the first and the last id that a scan has seen.
func (b *ownBound) saw(first, last int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.from, b.last = min(b.from, first), max(b.last, last)
}

// due tells, once in a while, that the start may be moved, and where from.
func (b *ownBound) due() (from int64, due bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.now()
	if due = at.Sub(b.moved) >= ownMove; due {
		b.moved = at
	}
	return b.from, due
}

// move moves the start up to the first row that is there, committed or not, or behind all that
// were seen where there is none; but not beyond what the look before has said, since a row
// may have been on its way then.
func (b *ownBound) move(first int64, some bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !some {
		first = b.last + 1
	}
	if b.before > 0 {
		b.from = max(b.from, min(first, b.before))
	}
	b.before = first
}

// moveBound looks for the first row and moves the start of the scans to it. Where somebody has
// the row locked, the start stays.
func (s *Store) moveBound(ctx context.Context, what string, b *ownBound, q statement) {
	from, due := b.due()
	if !due {
		return
	}
	var first int64
	err := s.read(ctx, what+": first", func(c *session) error {
		return c.one(ctx, q, args(a("from", from)), &first)
	})
	switch {
	case err == nil:
		b.move(first, true)
	case errors.Is(err, sql.ErrNoRows):
		b.move(0, false)
	case !errors.Is(err, storage.ErrLocked):
		s.log.DebugContext(ctx, "the start of a scan stays", "scan", what, "error", err)
	}
}
