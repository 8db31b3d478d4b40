package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
)

// ExplainMessage says why a message is not claimable now. Its sentences are part of what
// docs/operations.md promises.
func (a *api) ExplainMessage(ctx context.Context, req *queueboxv1.ExplainMessageRequest) (*queueboxv1.ExplainMessageResponse, error) {
	c := &check{}
	c.queue("queue", req.GetQueue())
	ref := c.message("message_id", req.GetMessageId())
	if err := c.err(); err != nil {
		return nil, err
	}
	q, err := a.catalog.id(ctx, req.GetQueue())
	if errors.Is(err, storage.ErrQueueNotFound) || err == nil && q.ID != ref.QueueID {
		return nil, messageNotFound()
	}
	if err != nil {
		return nil, err
	}
	call, cancel := a.statement(ctx)
	defer cancel()
	x, err := a.store.Explain(call, ref)
	if err != nil {
		return nil, err
	}
	a.clock.seen(x.Now, a.now())
	return explained(&x), nil
}

func explained(x *storage.Explanation) *queueboxv1.ExplainMessageResponse {
	out := &queueboxv1.ExplainMessageResponse{Blockers: blockers(x)}
	if x.Head != (storage.Ref{}) {
		out.BlockingMessageId = wireid.Message(x.Head)
	}
	out.Claimable = len(out.GetBlockers()) == 0
	out.EarliestClaimTime = stamp(earliest(x, out.GetClaimable()))
	if overdue(x) && !out.GetClaimable() && !endsSoon(x) {
		out.Blockers = append(out.Blockers, "lease over since "+instant(x.Message.LeaseEnd)+", will be reclaimed")
	}
	out.MessagesAhead = x.Ahead
	return out
}

// blockers lists everything that keeps a message from being claimed at that instant.
func blockers(x *storage.Explanation) []string {
	m := &x.Message
	var why []string
	add := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	switch {
	case x.Settling:
		add("settling in a transaction of its worker: %s", finished(m))
		return why
	case m.State == storage.StateCompleted || m.State == storage.StateDead || m.State == storage.StateCancelled:
		add("finished: %s at %s", finished(m), instant(m.FinishTime))
		return why
	}
	if x.Paused {
		add("paused")
	}
	live := m.State == storage.StateProcessing && m.LeaseEnd.After(x.Now)
	switch {
	case live && m.WorkerID == "":
		add("leased by a worker without a name until %s", instant(m.LeaseEnd))
	case live:
		add("leased by %q until %s", m.WorkerID, instant(m.LeaseEnd))
	case m.State == storage.StatePending && m.ReadyTime.After(x.Now) && m.Attempt > 0:
		add("waiting for a retry until %s", instant(m.ReadyTime))
	case m.State == storage.StatePending && m.ReadyTime.After(x.Now):
		add("delayed until %s", instant(m.ReadyTime))
	}
	switch {
	case x.Head != (storage.Ref{}) && x.HeadState == storage.StateDead:
		add("key blocked by dead message %s", wireid.Message(x.Head))
	case x.Head != (storage.Ref{}):
		add("behind message %s of its key", wireid.Message(x.Head))
	case x.Parked:
		add("behind a message of its key that has just gone")
	}
	if x.CancelRequested {
		add("cancel requested")
	}
	if x.LastAttempt {
		add("last attempt: %d of %d", m.Attempt, m.MaxAttempts)
	}
	if expired(x) {
		add("expired at %s", instant(m.ExpireTime))
	}
	if x.InFlightLimit {
		add("limit max_in_flight reached")
	}
	if x.RateLimit {
		add("rate limit reached")
	}
	return why
}

func finished(m *storage.Message) string {
	switch m.State {
	case storage.StateCompleted:
		return "completed"
	case storage.StateDead:
		return "dead (" + strings.TrimPrefix(queueboxv1.DeadReason(m.DeadReason).String(), "DEAD_REASON_") + ")"
	case storage.StateCancelled:
		return "cancelled"
	case storage.StatePending, storage.StateProcessing, storage.StateSettling:
	}
	return "to be tried again"
}

func expired(x *storage.Explanation) bool {
	return !x.Message.ExpireTime.IsZero() && !x.Message.ExpireTime.After(x.Now)
}

// overdue tells that the message was claimed and nobody holds it any more.
func overdue(x *storage.Explanation) bool {
	return x.Message.State == storage.StateProcessing && !x.Settling && !x.Message.LeaseEnd.After(x.Now)
}

// endsSoon tells that no claim will take the message any more.
func endsSoon(x *storage.Explanation) bool {
	finished := x.Message.State != storage.StatePending && x.Message.State != storage.StateProcessing
	return finished || x.CancelRequested || x.LastAttempt || expired(x)
}

// earliest is when the message is claimable as far as that is known; zero where it is not.
func earliest(x *storage.Explanation, claimable bool) time.Time {
	m := &x.Message
	at := x.Now
	switch {
	case claimable:
		return at
	case endsSoon(x), x.Settling, x.Paused, x.Parked, x.InFlightLimit, x.RateLimit:
		return time.Time{}
	case m.State == storage.StateProcessing:
		at = m.LeaseEnd
	default:
		at = m.ReadyTime
	}
	if !m.ExpireTime.IsZero() && !m.ExpireTime.After(at) {
		return time.Time{}
	}
	return at
}

// instant writes a time as everywhere: UTC, with what fraction it has.
func instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
