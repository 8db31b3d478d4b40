package rowlock

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qHeldLock statement = "held_lock"
	qHeldWait statement = "held_wait"
)

// lockedClaim is a claim whose message the transaction has locked.
type lockedClaim struct {
	item int // its place among those that were asked for
	// leaseEnd may be over: a later statement judges it (S13).
	leaseEnd time.Time
}

// claimRow is a claim as the statements with a fence list it.
func (c *session) claimRow(h storage.HeldClaim) []any {
	return []any{h.Ref.QueueID, idOf(h.Ref.Position), c.s.engine.Values.TokenText(h.Token)}
}

// lockHeld locks the messages of claims, in their order, where the message is still claimed by
// the token, and tells which those are.
func (c *session) lockHeld(ctx context.Context, how taken, claims []storage.HeldClaim) ([]lockedClaim, error) {
	var locked []lockedClaim
	if len(claims) == 0 {
		return nil, nil
	}
	err := c.together(ctx, c.lockingHeld(how, claims, &locked))
	return locked, err
}

// lockingHeld is the step of lockHeld; there are claims.
func (c *session) lockingHeld(how taken, claims []storage.HeldClaim, locked *[]lockedClaim) step {
	rows := make([][]any, len(claims))
	for i, h := range claims {
		rows[i] = append([]any{i}, c.claimRow(h)...)
	}
	// By id, as all who wait for several do (D12).
	slices.SortFunc(rows, func(a, b []any) int { return cmp.Compare(a[2].(int64), b[2].(int64)) })
	q := qHeldLock
	if how == waitTaken {
		q = qHeldWait
	}
	return reading(q, args(c.list(rows)), func(rows *sql.Rows) error {
		var l lockedClaim
		err := rows.Scan(&l.item, &l.leaseEnd)
		l.leaseEnd = l.leaseEnd.UTC()
		*locked = append(*locked, l)
		return err
	})
}
