package rowlock

import (
	"context"
	"database/sql"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qEndLock       statement = "end_lock"
	qDeadCopy      statement = "dead_copy"
	qMessageDelete statement = "message_delete"
)

// burial is a message that moves to the dead ones.
type burial struct {
	ref    storage.Ref
	state  storage.State // dead or cancelled
	reason storage.DeadReason
	action storage.Action // 0 where no settlement ended it
	refund bool           // the attempt is given back
}

// bury moves messages to the dead ones; the transaction has the locks of their rows and keys.
// The token of the last holder stays with them. What their keys wait for is the caller's:
// block, then promote.
func (c *session) bury(ctx context.Context, now time.Time, what []burial) error {
	if len(what) == 0 {
		return nil
	}
	rows := make([][]any, len(what))
	ids := make([]int64, len(what))
	for i, b := range what {
		refund := 0
		if b.refund {
			refund = 1
		}
		ids[i] = idOf(b.ref.Position)
		rows[i] = []any{ids[i], b.ref.QueueID, b.state, b.reason, b.action, refund}
	}
	return c.together(
		ctx, matching(qDeadCopy, len(rows), c.list(rows), a("now", c.s.engine.Values.Time(now))), matching(qMessageDelete, len(ids), c.ids(ids)),
	)
}

// exactly runs a statement that has to match so many rows. Where it matches others, something
// that was true of them is so no more, such as a lease that was running, and the transaction
// runs again.
func (c *session) exactly(ctx context.Context, q statement, rows int, args ...Arg) error {
	n, err := c.change(ctx, q, args...)
	if err == nil && n != int64(rows) {
		err = errAgain
	}
	return err
}

// ending is what became of a message that ended without a settlement.
type ending struct {
	ref    storage.Ref
	state  storage.State
	reason storage.DeadReason
}

// end moves those of the messages that nobody holds, and that no claim may take any more, to
// the dead ones (C18, E7, S14); with cancel, all that nobody holds. What somebody else has
// locked is passed over, and so is a message whose ordering key is not among those that the
// transaction has locked. The caller promotes afterwards, where it has locked keys.
func (c *session) end(ctx context.Context, refs []storage.Ref, cancel bool, keys lockedKeys) ([]ending, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	rows := make([][]any, len(refs))
	for i, ref := range refs {
		rows[i] = []any{idOf(ref.Position), ref.QueueID}
	}
	var (
		ended []ending
		what  []burial
		heads []died
		now   time.Time
	)
	err := c.each(ctx, qEndLock, args(c.list(rows), a("cancel", cancel)), func(rows *sql.Rows) error {
		var (
			id   int64
			key  sql.NullInt64
			head bool
			at   time.Time
			e    ending
		)
		err := rows.Scan(&id, &e.ref.QueueID, &key, &head, &e.state, &e.reason, &at)
		if err != nil || !keys.has(key) {
			return err
		}
		if at.After(now) {
			now = at
		}
		e.ref.Position = positionOf(id, key.Valid)
		ended = append(ended, e)
		what = append(what, burial{ref: e.ref, state: e.state, reason: e.reason})
		if head && key.Valid && e.state == storage.StateDead {
			heads = append(heads, died{keyID: key.Int64, ref: e.ref})
		}
		return nil
	})
	if err != nil || len(ended) == 0 {
		return nil, err
	}
	if err := c.bury(ctx, now, what); err != nil {
		return nil, err
	}
	return ended, c.block(ctx, heads)
}
