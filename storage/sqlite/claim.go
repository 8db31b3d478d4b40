package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/queuebox/queuebox/storage"
)

// dueLimit bounds how many delayed messages one claim moves to the ready set, so that a
// claim stays short when very many become due at once.
const dueLimit = 1000

const tokenBytes = len(storage.Token{})

// heldBytes is one message in claim_call.held: its position and its token.
const heldBytes = 8 + tokenBytes

// Claim implements storage.Store.
func (s *Store) Claim(ctx context.Context, p storage.ClaimParams) (storage.ClaimResult, error) {
	// A first look on a snapshot keeps empty claims away from the write lock. Where the
	// last claim found messages it would most likely be in vain.
	if _, ok := s.busy.Load(p.QueueID); !ok {
		res, empty, err := s.look(ctx, p)
		if err != nil {
			return storage.ClaimResult{}, err
		}
		if empty {
			return res, nil
		}
	}
	var res storage.ClaimResult
	err := s.write(ctx, "claim", func(quiet context.Context, c *session) (verdict, error) {
		k := claiming{c: c, p: p, hints: scanHints(p.ScanFrom)}
		v, err := k.run(ctx, quiet)
		res = k.res
		return v, err
	})
	if err != nil {
		return storage.ClaimResult{}, err
	}
	s.noteBusy(p.QueueID, res)
	return res, nil
}

func (s *Store) noteBusy(queueID int32, res storage.ClaimResult) {
	for _, call := range res.Calls {
		if len(call.Messages) > 0 {
			s.busy.Store(queueID, true)
			return
		}
	}
	s.busy.Delete(queueID)
}

// look tells whether there is nothing to do at all: nothing ready, nothing due, and no
// claim id that is known. Its answer is then that of the claim.
func (s *Store) look(ctx context.Context, p storage.ClaimParams) (storage.ClaimResult, bool, error) {
	var res storage.ClaimResult
	empty := false
	err := s.read(ctx, "claim", func(c *session) error {
		k := claiming{c: c, p: p, hints: scanHints(p.ScanFrom)}
		var err error
		if k.res.Now, err = c.now(ctx); err != nil {
			return err
		}
		k.res.Calls = servedCalls(len(p.Calls))
		for _, call := range p.Calls {
			known, err := k.known(ctx, call)
			if err != nil || known {
				return err
			}
		}
		q, err := c.queueBy(ctx, qQueueGetByID, p.QueueID)
		if err != nil {
			return err
		}
		if err := k.nextReady(ctx); err != nil {
			return err
		}
		k.res.End = !q.Paused
		if !q.Paused {
			due := !k.res.NextReady.IsZero() && !k.res.NextReady.After(k.res.Now)
			if due {
				return nil
			}
			found, more, err := k.scan(ctx, 1)
			if err != nil {
				return err
			}
			if len(found) > 0 || more {
				// Something is there; a limit may still say that it cannot be had now.
				k.res.End = false
				allowed, err := k.leave(ctx, q, k.wanted())
				if err != nil || allowed > 0 {
					return err
				}
			}
		}
		res, empty = k.res, true
		return nil
	})
	return res, empty, err
}

// claiming is one claim on one session.
type claiming struct {
	c     *session
	p     storage.ClaimParams
	hints map[int32]int64
	res   storage.ClaimResult
	// The bounds of C13, and what was taken against them.
	wireBytes, payloadBytes int64
	// bucket is that of the queue, where it has one (L2).
	bucket storage.Bucket
}

// wanted is how many messages the calls want that no repeat has answered.
func (k *claiming) wanted() int {
	want := 0
	for i, call := range k.p.Calls {
		if k.res.Calls[i].Status == storage.ClaimServed {
			want += call.Max
		}
	}
	return want
}

func scanHints(hints []storage.ScanHint) map[int32]int64 {
	m := make(map[int32]int64, len(hints))
	for _, h := range hints {
		m[h.Priority] = h.ReadyTime.UnixMilli()
	}
	return m
}

func servedCalls(n int) []storage.ClaimOutcome {
	calls := make([]storage.ClaimOutcome, n)
	for i := range calls {
		calls[i].Status = storage.ClaimServed
	}
	return calls
}

// run claims under the write lock.
func (k *claiming) run(ctx, quiet context.Context) (verdict, error) {
	var err error
	if k.res.Now, err = k.c.now(quiet); err != nil {
		return rollback, err
	}
	q, err := k.c.queueBy(quiet, qQueueGetByID, k.p.QueueID)
	if err != nil {
		return rollback, err
	}
	k.res.Calls = servedCalls(len(k.p.Calls))
	wrote := false
	for i, call := range k.p.Calls {
		replayed, err := k.replay(quiet, i, call)
		if err != nil {
			return rollback, err
		}
		wrote = wrote || replayed
	}
	if q.Paused {
		return verdict(wrote), k.nextReady(quiet)
	}
	want, err := k.leave(quiet, q, k.wanted())
	if err != nil {
		return rollback, err
	}
	if want > 0 {
		moved, err := k.moveDue(quiet)
		if err != nil {
			return rollback, err
		}
		found, more, err := k.scan(ctx, want)
		if err != nil {
			return rollback, err
		}
		k.res.More = more || moved == dueLimit
		if err := k.deal(ctx, quiet, found); err != nil {
			return rollback, err
		}
		if err := k.spend(quiet, q, want, found); err != nil {
			return rollback, err
		}
		k.res.End = !k.res.More && k.res.Limit == storage.LimitNone
		wrote = wrote || moved > 0 || len(found) > 0
	}
	empty := func(call storage.ClaimOutcome) bool { return len(call.Messages) == 0 }
	if k.res.End || slices.ContainsFunc(k.res.Calls, empty) {
		return verdict(wrote), k.nextReady(quiet)
	}
	return verdict(wrote), nil
}

// known tells whether the claim id of a call was used before.
func (k *claiming) known(ctx context.Context, call storage.ClaimCall) (bool, error) {
	if call.ClaimID == (storage.ClaimID{}) {
		return false, nil
	}
	known := false
	err := k.c.each(ctx, qClaimCallGet, args(k.p.QueueID, call.ClaimID[:]), func(*row) error {
		known = true
		return nil
	})
	return known, err
}

// replay answers a call whose claim id was used before (C14), and tells whether it wrote.
func (k *claiming) replay(ctx context.Context, i int, call storage.ClaimCall) (bool, error) {
	if call.ClaimID == (storage.ClaimID{}) {
		return false, nil
	}
	var id int64
	var worker string
	var replayed bool
	var held []byte
	err := k.c.one(ctx, qClaimCallGet, args(k.p.QueueID, call.ClaimID[:]), &id, &worker, &replayed, &held)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	out := &k.res.Calls[i]
	if worker != call.WorkerID {
		out.Status = storage.ClaimIDReused
		return false, nil
	}
	out.Status = storage.ClaimReplayed
	for ; len(held) >= heldBytes; held = held[heldBytes:] {
		position := int64(binary.BigEndian.Uint64(held))
		err := k.c.each(ctx, qClaimHeld, args(k.p.QueueID, position, held[8:heldBytes]), func(rows *row) error {
			m, err := scanLive(rows)
			m.Message = withPayload(m.Message, true)
			out.Messages = append(out.Messages, m)
			return err
		})
		if err != nil {
			return false, err
		}
	}
	if replayed || len(out.Messages) == 0 {
		return false, nil
	}
	_, err = k.c.exec(ctx, qClaimCallReplayed, id)
	return true, err
}

// moveDue moves delayed messages whose time has come to the ready set, and tells how many.
func (k *claiming) moveDue(ctx context.Context) (int64, error) {
	hints := make(map[string]int64, len(k.hints))
	for priority, ms := range k.hints {
		hints[strconv.Itoa(int(priority))] = ms
	}
	text, err := toJSON(hints)
	if err != nil {
		return 0, err
	}
	return k.c.exec(ctx, qClaimDue, k.p.QueueID, dueLimit, text, k.res.Now.UnixMilli())
}

// scan finds up to limit claimable messages in the order of a claim, as far as the answer
// can carry them, and tells whether there are more. It seeks from one priority to the next
// smaller one, since each may have a place of its own to start at.
func (k *claiming) scan(ctx context.Context, limit int) (found []storage.Claimed, more bool, err error) {
	for from := int64(math.MaxInt32); !more; {
		var priority int64
		err := k.c.one(ctx, qClaimPriority, args(k.p.QueueID, from), &priority)
		if errors.Is(err, sql.ErrNoRows) {
			break
		}
		if err != nil {
			return nil, false, err
		}
		hint, ok := k.hints[int32(priority)]
		if !ok {
			hint = math.MinInt64
		}
		// One row more than is wanted tells whether there are more.
		err = k.c.each(ctx, qClaimScan, args(k.p.QueueID, priority, hint, limit-len(found)+1, k.res.Now.UnixMilli()), func(rows *row) error {
			m, wire, err := scanClaimable(rows)
			if err != nil {
				return err
			}
			m.Message.Ref.QueueID, m.Message.Priority = k.p.QueueID, int32(priority)
			if len(found) == limit || !k.fits(len(found), wire, m.Message.PayloadBytes) {
				more = true
				return errEnough
			}
			found = append(found, m)
			return nil
		})
		if err != nil {
			return nil, false, err
		}
		from = priority - 1
	}
	return found, more, nil
}

// fits counts a message against the bounds of the answer: rows are cut before they are
// leased, and one is always allowed (C13).
func (k *claiming) fits(taken int, wire, payload int64) bool {
	k.wireBytes += wire
	k.payloadBytes += payload
	var maxPayload int64
	if len(k.p.Calls) == 1 {
		maxPayload = k.p.Calls[0].MaxPayloadBytes
	}
	tooMuch := k.p.MaxWireBytes > 0 && k.wireBytes > k.p.MaxWireBytes || maxPayload > 0 && k.payloadBytes > maxPayload
	return taken == 0 || !tooMuch
}

// deal leases the messages to the calls, in the order of the calls.
func (k *claiming) deal(ctx, quiet context.Context, found []storage.Claimed) error {
	for i, call := range k.p.Calls {
		if k.res.Calls[i].Status != storage.ClaimServed || len(found) == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(call.Max, len(found))
		if err := k.lease(quiet, call, found[:n:n]); err != nil {
			return err
		}
		k.res.Calls[i].Messages = found[:n:n]
		found = found[n:]
	}
	return nil
}

// lease claims messages for one call and fills in what that changes about them.
func (k *claiming) lease(ctx context.Context, call storage.ClaimCall, messages []storage.Claimed) error {
	tokens := make([]byte, tokenBytes*len(messages))
	if _, err := rand.Read(tokens); err != nil {
		return err
	}
	now, length := k.res.Now.UnixMilli(), toMillis(call.Lease)
	for from := 0; from < len(messages); {
		to := endOfRun(messages, from)
		first, last := messages[from].Message.Ref.Position, messages[to-1].Message.Ref.Position
		n, err := k.c.exec(ctx, qClaimLease, first, tokens[tokenBytes*from:tokenBytes*to], now, length, call.WorkerID, last)
		if err != nil {
			return err
		}
		if n != int64(to-from) {
			return fmt.Errorf("%d messages from %d on were found and %d are there", to-from, first, n)
		}
		from = to
	}
	end := fromMillis(now + length)
	for i := range messages {
		m := &messages[i]
		copy(m.Token[:], tokens[tokenBytes*i:])
		m.Message = withPayload(m.Message, true)
		m.Message.State = storage.StateProcessing
		m.Message.Attempt++
		m.Message.WorkerID = call.WorkerID
		m.Message.LeaseEnd = end
	}
	if call.ClaimID == (storage.ClaimID{}) {
		return nil
	}
	held := make([]byte, 0, heldBytes*len(messages))
	for i := range messages {
		held = binary.BigEndian.AppendUint64(held, uint64(messages[i].Message.Ref.Position))
		held = append(held, messages[i].Token[:]...)
	}
	_, err := k.c.exec(ctx, qClaimCallPut, k.p.QueueID, call.ClaimID[:], call.WorkerID, held)
	return err
}

// endOfRun gives the end of the run of positions without a gap that begins at from. Messages
// that were enqueued together are most often claimed together, and one statement takes a run.
func endOfRun(messages []storage.Claimed, from int) int {
	to := from + 1
	for to < len(messages) && messages[to].Message.Ref.Position == messages[to-1].Message.Ref.Position+1 {
		to++
	}
	return to
}

// nextReady reads the earliest ready time of the delayed messages.
func (k *claiming) nextReady(ctx context.Context) error {
	return k.c.each(ctx, qClaimNextReady, args(k.p.QueueID), func(rows *row) error {
		var ms int64
		err := rows.Scan(&ms)
		k.res.NextReady = fromMillis(ms)
		return err
	})
}

// GiveBack implements storage.Store. A repeat of the claim that got the messages meanwhile
// keeps them all (C15): both look at the same row of claim_call under the write lock.
func (s *Store) GiveBack(ctx context.Context, p storage.GiveBackParams) (storage.GiveBackResult, error) {
	var res storage.GiveBackResult
	err := s.write(ctx, "give back", func(quiet context.Context, c *session) (verdict, error) {
		var err error
		if res.Now, err = c.now(quiet); err != nil {
			return rollback, err
		}
		if p.ClaimID != (storage.ClaimID{}) {
			var id int64
			var worker string
			var replayed bool
			var held []byte
			err := c.one(quiet, qClaimCallGet, args(p.QueueID, p.ClaimID[:]), &id, &worker, &replayed, &held)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return rollback, err
			}
			if replayed {
				return rollback, nil
			}
		}
		keys := make(keySet)
		for _, h := range p.Claims {
			err := c.each(quiet, qGiveBack, args(h.Ref.QueueID, h.Ref.Position, h.Token[:]), func(rows *row) error {
				var key sql.NullInt64
				err := rows.Scan(&key)
				if key.Valid {
					keys[key.Int64] = struct{}{}
				}
				res.GivenBack++
				return err
			})
			if err != nil {
				return rollback, err
			}
		}
		_, err = c.promote(quiet, keys.sorted())
		return verdict(res.GivenBack > 0), err
	})
	if err != nil {
		return storage.GiveBackResult{}, err
	}
	return res, nil
}
