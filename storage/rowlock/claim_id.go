package rowlock

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"slices"

	"github.com/queuebox/queuebox/storage"
)

const (
	qClaimCallLock     statement = "claim_call_lock"
	qClaimCallAdd      statement = "claim_call_add"
	qClaimCallHeld     statement = "claim_call_held"
	qClaimCallReplayed statement = "claim_call_replayed"
	qClaimCallDrop     statement = "claim_call_drop"
	qClaimHeld         statement = "claim_held"
)

// heldBytes is one message in claim_call.held: its position and its token.
const heldBytes = 8 + len(storage.Token{})

// claimIDs lists the claim ids of those of the calls that have one, of all where some is nil.
func (k *claiming) claimIDs(some func(i int) bool) [][]any {
	var list [][]any
	for i, call := range k.p.Calls {
		if call.ClaimID != (storage.ClaimID{}) && (some == nil || some(i)) {
			list = append(list, []any{k.tokenText(call.ClaimID)})
		}
	}
	return list
}

func (k *claiming) tokenText(id [16]byte) string { return k.c.s.engine.Values.TokenText(id) }

// earlier is a call that had a claim id.
type earlier struct {
	worker   string
	replayed bool
	held     []byte
}

// replay answers the calls whose claim id was used before (C14), and tells whether it wrote.
// From its first statement on the rows of those calls are locked: a give-back waits, and finds
// them replayed, or was faster, and then the call is a new one.
func (k *claiming) replay(ctx context.Context) (wrote bool, err error) {
	if !k.known {
		return false, nil
	}
	calls := make(map[storage.ClaimID]earlier)
	err = k.c.each(ctx, qClaimCallLock, args(a("queue_id", k.p.QueueID), k.c.list(k.claimIDs(nil))), func(rows *sql.Rows) error {
		var id storage.ClaimID
		var call earlier
		err := rows.Scan(k.c.s.engine.Values.ScanToken((*[16]byte)(&id)), &call.worker, &call.replayed, &call.held)
		calls[id] = call
		return err
	})
	if err != nil {
		return false, err
	}
	var list [][]any
	for i, call := range k.p.Calls {
		before, ok := calls[call.ClaimID]
		switch {
		case !ok || call.ClaimID == (storage.ClaimID{}):
		case before.worker != call.WorkerID:
			k.res.Calls[i].Status = storage.ClaimIDReused
		default:
			k.res.Calls[i].Status = storage.ClaimReplayed
			for _, h := range k.heldBy(before) {
				list = append(list, []any{idOf(h.Ref.Position), k.tokenText(h.Token)})
			}
		}
	}
	found := make(map[storage.HeldClaim]storage.Claimed, len(list))
	if len(list) > 0 {
		err = k.c.each(ctx, qClaimHeld, args(a("queue_id", k.p.QueueID), k.c.list(list)), func(rows *sql.Rows) error {
			m, err := k.c.scanClaimed(rows)
			found[storage.HeldClaim{Ref: m.Message.Ref, Token: m.Token}] = m
			return err
		})
	}
	if err != nil {
		return false, err
	}
	for i, call := range k.p.Calls {
		if k.res.Calls[i].Status != storage.ClaimReplayed {
			continue
		}
		for _, h := range k.heldBy(calls[call.ClaimID]) {
			if m, ok := found[h]; ok {
				k.res.Calls[i].Messages = append(k.res.Calls[i].Messages, m)
			}
		}
	}
	// Also where nothing is held any more: the caller has had its answer, so the id stays its own.
	received := k.claimIDs(func(i int) bool {
		return k.res.Calls[i].Status == storage.ClaimReplayed && !calls[k.p.Calls[i].ClaimID].replayed
	})
	if len(received) == 0 {
		return false, nil
	}
	return true, k.c.exactly(ctx, qClaimCallReplayed, len(received), a("queue_id", k.p.QueueID), k.c.list(received))
}

// heldBy are the claims of an earlier call.
func (k *claiming) heldBy(call earlier) []storage.HeldClaim {
	var claims []storage.HeldClaim
	for held := call.held; len(held) >= heldBytes; held = held[heldBytes:] {
		h := storage.HeldClaim{Ref: storage.Ref{QueueID: k.p.QueueID, Position: int64(binary.BigEndian.Uint64(held))}}
		copy(h.Token[:], held[8:])
		claims = append(claims, h)
	}
	return claims
}

// guard makes the rows of the calls that have a claim id, before the claim looks for messages.
// The key of the rows is what two running calls of one id meet at (C14): the second waits for the
// first, nothing of it happens, and its next look finds the row.
func (k *claiming) guard() {
	var list [][]any
	for i, call := range k.p.Calls {
		if call.ClaimID != (storage.ClaimID{}) && k.res.Calls[i].Status == storage.ClaimServed {
			list = append(list, []any{k.tokenText(call.ClaimID), call.WorkerID})
		}
	}
	if len(list) == 0 {
		return
	}
	// In one order, whatever that of the calls: two claims may have several ids in common.
	slices.SortFunc(list, func(x, y []any) int { return cmp.Compare(x[0].(string), y[0].(string)) })
	k.guards = []step{matching(qClaimCallAdd, len(list), a("queue_id", k.p.QueueID), k.c.list(list))}
}

// note keeps which messages the calls with a claim id have got; a call that got none leaves no
// row (C11).
func (k *claiming) note(ctx context.Context) error {
	var got, none [][]any
	for i, call := range k.p.Calls {
		out := k.res.Calls[i]
		switch {
		case call.ClaimID == (storage.ClaimID{}) || out.Status != storage.ClaimServed:
		case len(out.Messages) == 0:
			none = append(none, []any{k.tokenText(call.ClaimID)})
		default:
			held := make([]byte, 0, heldBytes*len(out.Messages))
			for _, m := range out.Messages {
				held = binary.BigEndian.AppendUint64(held, uint64(m.Message.Ref.Position))
				held = append(held, m.Token[:]...)
			}
			got = append(got, []any{k.tokenText(call.ClaimID), held})
		}
	}
	if len(got) > 0 {
		if err := k.c.exactly(ctx, qClaimCallHeld, len(got), a("queue_id", k.p.QueueID), k.c.list(got)); err != nil {
			return err
		}
	}
	if len(none) > 0 {
		return k.c.exactly(ctx, qClaimCallDrop, len(none), a("queue_id", k.p.QueueID), k.c.list(none))
	}
	return nil
}
