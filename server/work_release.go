package server

import (
	"context"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	// closeRows bounds the claims of one step when a stream ends that releases its leases.
	closeRows = 500
	// closeLease is what is left of a lease that ends now. The storage takes 0 for "as long
	// as before", and some count in milliseconds.
	closeLease = time.Millisecond
)

// endLeases ends the leases that a stream still holds (T3): those whose end in the database is
// the one that the stream was told last. Another end says that somebody renewed the claim
// without the stream, so that it is in use elsewhere. Who renews it between this look and the end
// of the lease, some milliseconds, loses it all the same: the end is a renewal, and of two renewals
// the last one counts. It is called when nobody waits for the answer, so what fails is left to run
// out.
func (a *api) endLeases(ctx context.Context, held []heldLease) {
	ended := 0
	for len(held) > 0 {
		n := min(len(held), closeRows)
		some, err := a.stillHeld(ctx, held[:n])
		if err == nil {
			some, err = a.cutLeases(ctx, some)
		}
		if err != nil {
			a.log.WarnContext(ctx, "leases of a work stream that ended were not ended; they run out", "claims", len(held), "error", err)
			break
		}
		ended += len(some)
		held = held[n:]
	}
	if ended > 0 {
		a.metrics.workReleased.Add(float64(ended))
	}
}

// stillHeld keeps the claims whose lease nobody else has renewed.
func (a *api) stillHeld(ctx context.Context, held []heldLease) ([]heldLease, error) {
	ends := make(map[storage.Ref]time.Time, len(held))
	positions := map[int32][]int64{}
	for _, h := range held {
		id := h.claim.Ref.QueueID
		positions[id] = append(positions[id], h.claim.Ref.Position)
	}
	for id, list := range positions {
		call, cancel := a.statement(ctx)
		res, err := a.store.ListMessages(call, storage.ListMessagesParams{
			QueueID: id, States: []storage.State{storage.StateProcessing}, Positions: list, Limit: len(list),
		})
		cancel()
		if err != nil {
			return nil, err
		}
		for i := range res.Messages {
			ends[res.Messages[i].Ref] = res.Messages[i].LeaseEnd
		}
	}
	still := make([]heldLease, 0, len(held))
	for _, h := range held {
		if ends[h.claim.Ref].Equal(h.leaseEnd) {
			still = append(still, h)
		}
	}
	return still, nil
}

// cutLeases ends leases at once. The attempts stay counted, and the messages can be claimed
// again; one that has no attempt left is for the sweep (C18).
func (a *api) cutLeases(ctx context.Context, held []heldLease) ([]heldLease, error) {
	if len(held) == 0 {
		return nil, nil
	}
	items := make([]storage.Renewal, len(held))
	for i, h := range held {
		items[i] = storage.Renewal{Ref: h.claim.Ref, Token: h.claim.Token, Lease: closeLease, MaxLease: closeLease}
	}
	call, cancel := a.statement(ctx)
	defer cancel()
	res, err := a.join.Renew(call, connection(ctx), items)
	if err != nil {
		return nil, err
	}
	now := a.now()
	ended := held[:0]
	queues := map[int32][]int64{}
	for i, r := range res.Items {
		ref := items[i].Ref
		if r.Status != storage.ItemApplied {
			a.notHeld(ref, r.Status)
			continue
		}
		ended = append(ended, held[i])
		queues[ref.QueueID] = append(queues[ref.QueueID], ref.Position)
		a.dispatch.LeaseEnds(ref.QueueID, ref.Position, r.LeaseEnd, res.Now)
		a.ends.renewed(ref, now.Add(r.LeaseEnd.Sub(res.Now)), r.CancelRequested)
	}
	for id, positions := range queues {
		a.dispatch.LeasesCut(id, positions)
	}
	return ended, nil
}
