package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"math"
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
		if !q.Paused {
			due := !k.res.NextReady.IsZero() && !k.res.NextReady.After(k.res.Now)
			if due {
				return nil
			}
			found, err := k.scan(ctx, 1)
			if err != nil || len(found) > 0 {
				return err
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
}

// candidate is a claimable message.
type candidate struct {
	position     int64
	wireBytes    int64
	payloadBytes int64
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
	wrote, want := false, 0
	for i, call := range k.p.Calls {
		replayed, err := k.replay(quiet, i, call)
		if err != nil {
			return rollback, err
		}
		wrote = wrote || replayed
		if k.res.Calls[i].Status == storage.ClaimServed {
			want += call.Max
		}
	}
	if q.Paused {
		return verdict(wrote), k.nextReady(quiet)
	}
	if want > 0 {
		moved, err := k.moveDue(quiet)
		if err != nil {
			return rollback, err
		}
		found, err := k.scan(ctx, want+1)
		if err != nil {
			return rollback, err
		}
		taken := k.cut(found, want)
		k.res.More = len(taken) < len(found) || moved == dueLimit
		if err := k.deal(ctx, quiet, taken); err != nil {
			return rollback, err
		}
		wrote = wrote || moved > 0 || len(taken) > 0
	}
	for _, call := range k.res.Calls {
		if len(call.Messages) == 0 {
			return verdict(wrote), k.nextReady(quiet)
		}
	}
	return verdict(wrote), nil
}

// known tells whether the claim id of a call was used before.
func (k *claiming) known(ctx context.Context, call storage.ClaimCall) (bool, error) {
	if call.ClaimID == (storage.ClaimID{}) {
		return false, nil
	}
	known := false
	err := k.c.each(ctx, qClaimCallGet, args(k.p.QueueID, call.ClaimID[:]), func(*sql.Rows) error {
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
		err := k.c.each(ctx, qClaimHeld, args(k.p.QueueID, position, held[8:heldBytes]), func(rows *sql.Rows) error {
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
	return k.c.exec(ctx, qClaimDue, k.p.QueueID, dueLimit, text)
}

// scan finds up to limit claimable messages in the order of a claim. It seeks from one
// priority to the next smaller one, since each may have a place of its own to start at.
func (k *claiming) scan(ctx context.Context, limit int) ([]candidate, error) {
	var found []candidate
	for from := int64(math.MaxInt32); len(found) < limit; {
		var priority int64
		err := k.c.one(ctx, qClaimPriority, args(k.p.QueueID, from), &priority)
		if errors.Is(err, sql.ErrNoRows) {
			break
		}
		if err != nil {
			return nil, err
		}
		hint, ok := k.hints[int32(priority)]
		if !ok {
			hint = math.MinInt64
		}
		err = k.c.each(ctx, qClaimScan, args(k.p.QueueID, priority, hint, limit-len(found)), func(rows *sql.Rows) error {
			var c candidate
			err := rows.Scan(&c.position, &c.wireBytes, &c.payloadBytes)
			found = append(found, c)
			return err
		})
		if err != nil {
			return nil, err
		}
		from = priority - 1
	}
	return found, nil
}

// cut takes from the front what the calls want and the answer can carry: rows are cut
// before they are leased, and one is always allowed (C13).
func (k *claiming) cut(found []candidate, want int) []candidate {
	var wire, payload, maxPayload int64
	if len(k.p.Calls) == 1 {
		maxPayload = k.p.Calls[0].MaxPayloadBytes
	}
	for i, c := range found {
		wire += c.wireBytes
		payload += c.payloadBytes
		tooMuch := k.p.MaxWireBytes > 0 && wire > k.p.MaxWireBytes || maxPayload > 0 && payload > maxPayload
		if i == want || i > 0 && tooMuch {
			return found[:i]
		}
	}
	return found
}

// deal leases the messages to the calls, in the order of the calls.
func (k *claiming) deal(ctx, quiet context.Context, taken []candidate) error {
	for i, call := range k.p.Calls {
		if k.res.Calls[i].Status != storage.ClaimServed || len(taken) == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(call.Max, len(taken))
		messages, err := k.lease(quiet, call, taken[:n])
		if err != nil {
			return err
		}
		k.res.Calls[i].Messages = messages
		taken = taken[n:]
	}
	return nil
}

// lease claims messages for one call, and puts them in the order of the claim, which no
// RETURNING promises.
func (k *claiming) lease(ctx context.Context, call storage.ClaimCall, rows []candidate) ([]storage.Claimed, error) {
	tokens := make([]byte, tokenBytes*len(rows))
	if _, err := rand.Read(tokens); err != nil {
		return nil, err
	}
	place := make(map[int64]int, len(rows))
	positions := make([]byte, 0, 12*len(rows)+2)
	positions = append(positions, '[')
	for i, r := range rows {
		place[r.position] = i
		if i > 0 {
			positions = append(positions, ',')
		}
		positions = strconv.AppendInt(positions, r.position, 10)
	}
	positions = append(positions, ']')
	messages := make([]storage.Claimed, len(rows))
	a := args(string(positions), tokens, toMillis(call.Lease), call.WorkerID)
	err := k.c.each(ctx, qClaimLease, a, func(r *sql.Rows) error {
		m, err := scanLive(r)
		m.Message = withPayload(m.Message, true)
		messages[place[m.Message.Ref.Position]] = m
		return err
	})
	if err != nil || call.ClaimID == (storage.ClaimID{}) {
		return messages, err
	}
	held := make([]byte, 0, heldBytes*len(rows))
	for _, m := range messages {
		held = binary.BigEndian.AppendUint64(held, uint64(m.Message.Ref.Position))
		held = append(held, m.Token[:]...)
	}
	_, err = k.c.exec(ctx, qClaimCallPut, k.p.QueueID, call.ClaimID[:], call.WorkerID, held)
	return messages, err
}

// nextReady reads the earliest ready time of the delayed messages.
func (k *claiming) nextReady(ctx context.Context) error {
	return k.c.each(ctx, qClaimNextReady, args(k.p.QueueID), func(rows *sql.Rows) error {
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
		for _, h := range p.Claims {
			n, err := c.exec(quiet, qGiveBack, h.Ref.QueueID, h.Ref.Position, h.Token[:])
			if err != nil {
				return rollback, err
			}
			res.GivenBack += int(n)
		}
		return verdict(res.GivenBack > 0), nil
	})
	if err != nil {
		return storage.GiveBackResult{}, err
	}
	return res, nil
}
