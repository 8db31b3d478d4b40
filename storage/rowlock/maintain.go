package rowlock

import (
	"context"
	"database/sql"
	"encoding/binary"
	"time"
)

const (
	qMaintainCalls  statement = "maintain_calls"
	qMaintainHeld   statement = "maintain_held"
	qMaintainDelete statement = "maintain_delete"
)

// Each batch of Maintain is a transaction of its own, small enough that nobody waits for it;
// the rest is left for the next minute.
const (
	maintainBatch   = 200
	maintainBatches = 50
	// maintainAge is the age from which on a repeat of a claim is taken for a new one (C14).
	maintainAge = time.Hour
)

// oldCall is a claim call that may go.
type oldCall struct {
	queueID int32
	claimID [16]byte
	time    time.Time
	held    []byte
}

// Maintain implements storage.Store: it removes claim calls that are an hour old and of which
// nothing is held any more. The old ones come first, in the order of time; those that are
// still held are stepped over.
func (s *Store) Maintain(ctx context.Context) error {
	from := oldCall{time: earliestTime}
	for range maintainBatches {
		var calls, gone []oldCall
		err := s.read(ctx, "maintain claim calls", func(c *session) error {
			now, err := c.now(ctx)
			if err != nil {
				return err
			}
			if calls, err = c.oldCalls(ctx, from, now.Add(-maintainAge)); err != nil {
				return err
			}
			gone, err = c.notHeld(ctx, calls)
			return err
		})
		if err != nil {
			return err
		}
		if len(gone) > 0 {
			if err := s.removeCalls(ctx, gone); err != nil {
				return err
			}
		}
		if len(calls) < maintainBatch {
			return nil
		}
		from = calls[len(calls)-1]
	}
	return nil
}

// oldCalls reads the next calls after one, in the order of time, up to a time.
func (c *session) oldCalls(ctx context.Context, from oldCall, until time.Time) ([]oldCall, error) {
	v := c.s.engine.Values
	var calls []oldCall
	by := args(a("after_time", v.Time(from.time)), a("after_queue_id", from.queueID), a("until", v.Time(until)), a("limit", int64(maintainBatch)))
	err := c.each(ctx, qMaintainCalls, by, func(rows *sql.Rows) error {
		var k oldCall
		err := rows.Scan(&k.queueID, v.ScanToken(&k.claimID), &k.time, &k.held)
		k.time = k.time.UTC()
		calls = append(calls, k)
		return err
	})
	return calls, err
}

// notHeld are the calls of which no message is held any more.
func (c *session) notHeld(ctx context.Context, calls []oldCall) ([]oldCall, error) {
	var gone []oldCall
	for len(calls) > 0 {
		// Few calls with many messages are looked for at once, or many with few.
		n := 0
		var rows [][]any
		for n < len(calls) && (n == 0 || len(rows) < 1000) {
			for held := calls[n].held; len(held) >= heldBytes; held = held[heldBytes:] {
				id := idOf(int64(binary.BigEndian.Uint64(held)))
				rows = append(rows, []any{n, id, c.s.engine.Values.TokenText([16]byte(held[8:heldBytes]))})
			}
			n++
		}
		live := make(map[int]bool)
		err := c.each(ctx, qMaintainHeld, args(c.list(rows)), func(r *sql.Rows) error {
			var call int
			err := r.Scan(&call)
			live[call] = true
			return err
		})
		if err != nil {
			return nil, err
		}
		for i, call := range calls[:n] {
			if !live[i] {
				gone = append(gone, call)
			}
		}
		calls = calls[n:]
	}
	return gone, nil
}

// removeCalls removes claim calls. A claim id that was used anew meanwhile has another time.
func (s *Store) removeCalls(ctx context.Context, gone []oldCall) error {
	return s.write(ctx, "maintain claim calls", func(c *session) (verdict, error) {
		rows := make([][]any, len(gone))
		for i, k := range gone {
			rows[i] = []any{k.queueID, s.engine.Values.TokenText(k.claimID), instant(k.time)}
		}
		n, err := c.change(ctx, qMaintainDelete, c.list(rows))
		return verdict(n > 0), err
	})
}
