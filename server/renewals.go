package server

import (
	"context"
	"errors"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// renewals is a batch of renewals of one queue on its way: what is wrong with an item
// is its own error, the others go to the storage.
type renewals struct {
	errs  []error // by item
	items []storage.Renewal
	index []int // items[k] is item index[k]
}

// queueOf finds the queue that a call on messages names; false where there is none,
// and then there is no message either (S8).
func (a *api) queueOf(ctx context.Context, name string) (storage.Queue, bool, error) {
	q, err := a.catalog.get(ctx, name)
	if errors.Is(err, storage.ErrQueueNotFound) {
		return storage.Queue{}, false, nil
	}
	return q, err == nil, err
}

// renewAll renews items of one queue, each for itself; w, where not nil, watches over them
// from then on. The results are wire answers in
// the order of the items, or their errors.
func (a *api) renewAll(ctx context.Context, queue string, items []*queueboxv1.RenewItem, w *watch) ([]*queueboxv1.RenewResponse, []error, time.Time, error) {
	q, known, err := a.queueOf(ctx, queue)
	if err != nil {
		return nil, nil, time.Time{}, err
	}
	r := renewals{errs: make([]error, len(items))}
	for i, item := range items {
		renewal, err := renewal(q, known, item)
		if err != nil {
			r.errs[i] = err
			continue
		}
		r.items = append(r.items, renewal)
		r.index = append(r.index, i)
	}
	out := make([]*queueboxv1.RenewResponse, len(items))
	if len(r.items) == 0 {
		return out, r.errs, time.Time{}, nil
	}
	sent := a.now()
	w.show(r.items)
	res, err := a.join.Renew(ctx, connection(ctx), r.items)
	w.shown(r.items, res, err)
	if err != nil {
		return nil, nil, time.Time{}, err
	}
	now := a.now()
	for k, renewed := range res.Items {
		i := r.index[k]
		if renewed.Status == storage.ItemApplied {
			a.dispatch.LeaseEnds(q.ID, r.items[k].Ref.Position, renewed.LeaseEnd, res.Now)
			a.ends.renewed(r.items[k].Ref, now.Add(renewed.LeaseEnd.Sub(res.Now)), renewed.CancelRequested)
			a.metrics.renewed("ok")
			out[i] = &queueboxv1.RenewResponse{
				LeaseExpireTime:  stamp(renewed.LeaseEnd),
				LeaseRemainingMs: remaining(renewed.LeaseEnd, res.Now, now.Sub(sent)),
				CancelRequested:  renewed.CancelRequested,
				ServerTime:       stamp(res.Now),
			}
			continue
		}
		a.metrics.renewed("lost")
		a.notHeld(r.items[k].Ref, renewed.Status)
		r.errs[i] = itemFailure(renewed.Status, renewed.Cause, renewed.Outcome)
	}
	return out, r.errs, res.Now, nil
}

// renewal checks one item. The empty queue name was refused before.
func renewal(q storage.Queue, known bool, item *queueboxv1.RenewItem) (storage.Renewal, error) {
	c := &check{}
	ref := c.message("message_id", item.GetMessageId())
	token := c.token("claim_token", item.GetClaimToken())
	if item.GetLeaseMs() < 0 {
		c.wrongFor(queueboxv1.ErrorReason_ERROR_REASON_LEASE_OUT_OF_RANGE, "lease_ms", "is negative")
	}
	if err := c.err(); err != nil {
		return storage.Renewal{}, err
	}
	if !known || ref.QueueID != q.ID {
		return storage.Renewal{}, messageNotFound()
	}
	lease, err := leaseOf(q, "lease_ms", item.GetLeaseMs())
	if err != nil {
		return storage.Renewal{}, err
	}
	return storage.Renewal{Ref: ref, Token: token, Lease: lease, MaxLease: q.MaxLease}, nil
}

// notHeld forgets the end of a lease that the storage says is over or another's.
func (a *api) notHeld(ref storage.Ref, status storage.ItemStatus) {
	if status == storage.ItemSettled || status == storage.ItemNotFound {
		a.leaseOver(ref)
	}
}

// leaseOver forgets leases that are known to be over.
func (a *api) leaseOver(refs ...storage.Ref) {
	if len(refs) == 0 {
		return
	}
	positions := make([]int64, 0, len(refs))
	queue := refs[0].QueueID
	for _, ref := range refs {
		if ref.QueueID != queue {
			a.dispatch.Settled(queue, positions...)
			queue, positions = ref.QueueID, positions[:0]
		}
		positions = append(positions, ref.Position)
	}
	a.dispatch.Settled(queue, positions...)
	a.ends.drop(refs...)
}
