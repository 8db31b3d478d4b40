package storage

import (
	"context"
	"time"
)

// Operator is what an operator does to messages. None of it waits for a claimed message:
// a call that would have to says so, or leaves the message out.
type Operator interface {
	// Explain tells everything that keeps a message from being claimed now.
	// ErrMessageNotFound where the queue has no such message. It reads, and bounds what it
	// reads.
	Explain(ctx context.Context, ref Ref) (Explanation, error)
	// Revoke takes a claim away at once. The old token is dead from then on and hears
	// LostRevoked; the message is ready again, unless it ends. ErrMessageNotFound where
	// the queue has no such message; ErrUnavailable where its row is locked for longer than
	// the wait, and then nothing changed.
	Revoke(ctx context.Context, p RevokeParams) (RevokeResult, error)
	// Redrive returns dead messages to pending, each at the position that it has (O7), oldest
	// first, in one small transaction. A call looks at a bounded number of messages, so it may
	// move none and yet not be the last: the caller calls again until Next is 0.
	//
	// The attempts made stay counted and the last error stays; an expire time that has passed
	// is dropped, since the message would die at once. What became of its old tokens stays
	// told (S5, S6, S8). The idempotency key still names it (E1).
	Redrive(ctx context.Context, p RedriveParams) (BatchResult, error)
	// Purge deletes messages for good, with their idempotency keys and their history, in one
	// small transaction; never one that is processing, whatever the filter says and even where
	// its lease is over. The caller calls again until Next is 0, as for Redrive.
	Purge(ctx context.Context, p PurgeParams) (BatchResult, error)
}

// Explanation is what Explain knows.
type Explanation struct {
	Message Message
	// Paused: the queue is.
	Paused bool
	// Settling: a transaction of its worker has marked the message (E12); its State is what the
	// mark says.
	Settling bool
	// Parked: it is the turn of another message of its key. Head is the one that stands in
	// front, and HeadState its state: dead where it blocks the key (O7). The zero Ref where
	// nothing does, which is so for a moment while the key moves on.
	Parked    bool
	Head      Ref
	HeadState State
	// MaxInFlight or MaxClaimsPerSecond of the queue is used up right now (L1, L2).
	InFlightLimit, RateLimit bool
	// CancelRequested and LastAttempt: the message ends with its lease.
	CancelRequested, LastAttempt bool
	// Ahead counts the messages that a claim would take first; -1 where there are more than
	// 10,000. 0 where the message is not ready.
	Ahead int64
	Now   time.Time
}

// RevokeParams names the claim that a message has right now.
type RevokeParams struct {
	Ref Ref
	// Refund gives the attempt back. Without it a message on its last attempt becomes DEAD
	// (ATTEMPTS_EXHAUSTED).
	Refund bool
}

// RevokeResult tells what became of the message.
type RevokeResult struct {
	// Revoked is false where nobody held the message; nothing changed then.
	Revoked bool
	// Message after the call, without its payload.
	Message Message
	// WorkerID that lost the claim.
	WorkerID string
	// Ready: the message, or the next one of its key, may be claimed now.
	Ready bool
	Now   time.Time
}

// RedriveParams picks dead messages.
type RedriveParams struct {
	// Filter picks among the dead ones; States, Payload, Before and Limit are ignored.
	Filter ListMessagesParams
	// After is the Next of the call before; 0 starts at the oldest.
	After int64
	// Limit bounds the messages moved by this call; at least 1.
	Limit int
	// DryRun only counts.
	DryRun bool
	// Delay of the first message moved and Step, what each following one waits longer.
	Delay, Step time.Duration
	// MaxAttempts allows that many on top of those made; 0 allows as many as the setting of
	// the queue says, and no limit where it has none.
	MaxAttempts int32
}

// PurgeParams picks messages that nobody holds.
type PurgeParams struct {
	// Filter picks; Payload, Before and Limit are ignored.
	Filter ListMessagesParams
	// After is the Next of the call before; 0 starts anew.
	After int64
	// Limit bounds the messages deleted by this call; at least 1.
	Limit int
	// DryRun only counts.
	DryRun bool
}

// BatchResult tells what one call of Redrive or Purge did.
type BatchResult struct {
	Count int
	// Left counts messages that match and were passed over, since somebody else holds their
	// row or their key at this moment. A pass from 0 finds them again.
	Left int
	// Next is where the next call goes on, with the same filter; 0 says that the end was
	// reached.
	Next int64
	// Ready: a message may have become claimable.
	Ready bool
	Now   time.Time
}
