package sqlite

import (
	"context"
	"time"
)

// How a writer that always has something to write leaves the lock to another process. That one
// looks for it every few milliseconds (begin), and between two transactions it is free for some
// microseconds.
const (
	// yieldFor is how long another process counts as one that writes.
	yieldFor = 10 * time.Second
	// yieldEvery is how long a writer keeps the lock to itself, and yieldPause how long it then
	// leaves it, which is longer than the other one sleeps.
	yieldEvery = 25 * time.Millisecond
	yieldPause = 2 * maxBusyPause
)

// neighbour is what the writer knows about other processes that write to the file.
type neighbour struct {
	// version changes with the commits of others alone; 0 where it was not read yet.
	version int64
	// wrote is when the writer has last found that somebody else had written, and yielded when it
	// has last left the lock.
	wrote, yielded time.Time
}

const dataVersion = query("PRAGMA data_version")

// look notices whether somebody else has written since the last transaction of the writer. It is
// called in a transaction.
func (n *neighbour) look(ctx context.Context, c *session) error {
	if _, ok := c.stmts[dataVersion]; !ok {
		if _, err := c.prepare(ctx, dataVersion, string(dataVersion)); err != nil {
			return err
		}
	}
	var version int64
	if err := c.one(ctx, dataVersion, nil, &version); err != nil {
		return err
	}
	if n.version != 0 && n.version != version {
		n.wrote = time.Now() //nolint:forbidigo // how long ago, in this process
	}
	n.version = version
	return nil
}

// yield waits outside of any transaction, now and then, where somebody else writes too.
func (n *neighbour) yield() {
	if time.Since(n.wrote) > yieldFor || time.Since(n.yielded) < yieldEvery {
		return
	}
	time.Sleep(yieldPause)
	n.yielded = time.Now() //nolint:forbidigo // as above
}
