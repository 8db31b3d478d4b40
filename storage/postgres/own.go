package postgres

import (
	"sync"
	"time"
)

const (
	// ownRescan is how often a scan for what own transactions left starts at the beginning.
	// The bound of a scan is exact while the database is the same; after a failover that lost
	// commits rows can lie below it that were placed or finished before.
	ownRescan = 30 * time.Second
	// What one transaction of Place or Finish takes at most.
	ownRows  = 500
	ownBytes = 4 << 20
	// ownKeyWait is how long they wait for an ordering key that somebody has, while they hold
	// others: as keyWait is for an operator's call. The rest goes on without it then.
	ownKeyWait = 100 * time.Millisecond
)

// ownBound is where a scan of incoming or marked starts.
type ownBound struct {
	mu    sync.Mutex
	xid   string
	until time.Time // when the next scan starts at the beginning again
	now   func() time.Time
}

func newOwnBound() *ownBound {
	return &ownBound{xid: "0", now: time.Now} //nolint:forbidigo // measures a pause; it is never compared with a column
}

// from is where the next scan starts.
func (b *ownBound) from() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.now(); !at.Before(b.until) {
		b.until, b.xid = at.Add(ownRescan), "0"
	}
	return b.xid
}

// set takes what a scan returned. A scan that began before another one can only tell less,
// which costs a few dead rows and hides nothing.
func (b *ownBound) set(xid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.xid = xid
}

// forget makes the next scan start at the beginning.
func (b *ownBound) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.xid = "0"
}

// ownRow names a row of incoming or marked.
type ownRow struct {
	xid string
	seq int64
}

// namesOf gives rows as the arrays that the statements unnest.
func namesOf[R any](rows []R, name func(R) ownRow) (xids []string, seqs []int64) {
	xids, seqs = make([]string, 0, len(rows)), make([]int64, 0, len(rows))
	for _, r := range rows {
		n := name(r)
		xids, seqs = append(xids, n.xid), append(seqs, n.seq)
	}
	return xids, seqs
}
