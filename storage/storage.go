package storage

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Store is the hot path of a backend. All methods may be called at the same time
// from many goroutines. A method whose ctx ends returns soon, with an error that
// wraps ErrUnavailable, or ErrOutcomeUnknown where a commit was on its way.
//
// A backend MUST set the isolation level itself (D1), MUST retry deadlocks and
// serialization failures itself, few times and with jitter (D2), and MUST NOT
// run a write again after an error that does not prove its rollback (D8).
type Store interface {
	Admin
	Upkeep
	Operator
	Own

	// Capabilities never changes after Open.
	Capabilities() Capabilities

	// Enqueue inserts all messages in one transaction, or none (E9). Positions rise in
	// the order of the messages. Where any item comes back EnqueueKeyReused nothing was
	// inserted, and the items say which. The caller has checked names, limits and
	// ranges.
	Enqueue(ctx context.Context, p EnqueueParams) (EnqueueResult, error)

	// Claim leases ready messages of one queue to the calls, in the order of the calls:
	// the first call gets up to its Max, then the second, and so on. It never waits for
	// a row and never for a message. It MUST NOT take more rows than it returns (C19),
	// writes nothing when nothing is ready (C11) and changes nothing when it fails
	// (C10). A paused queue yields nothing.
	//
	// In a queue with MaxInFlight no more leases are live at any instant, whoever granted
	// them (L1), and in one with MaxClaimsPerSecond no window sees more claims than Rate
	// allows (L2); the database decides both. A repeat of a claim id counts for neither. A
	// claim that is given back has spent its token.
	Claim(ctx context.Context, p ClaimParams) (ClaimResult, error)

	// GiveBack returns claims whose caller went away before it had them, attempt
	// refunded, claimable at once (C15). Claims that a repeat of the same claim id has
	// received in the meantime stay as they are, all of them; GivenBack tells.
	GiveBack(ctx context.Context, p GiveBackParams) (GiveBackResult, error)

	// FirstReady looks for claimable messages that the hints of a claim would hide (W7): for
	// each place of p.Below the first one of its priority that stands before it. It reads
	// from the start of the ready set to those places, in time that grows with what lies
	// there, and changes and locks nothing; what somebody has locked counts as it was before.
	// Of the priorities that have no place it names some, with their first claimable message.
	FirstReady(ctx context.Context, p FirstReadyParams) (FirstReadyResult, error)

	// Renew sets lease ends anew, each item for itself (R1 to R7).
	Renew(ctx context.Context, p RenewParams) (RenewResult, error)

	// Settle applies settlements, each item for itself (S1 to S13). The same message
	// may stand in several items; at most one of them is applied.
	Settle(ctx context.Context, p SettleParams) (SettleResult, error)

	// Look tells what has become of claims, in the words of Renew, and changes nothing: it
	// is cheap where all of them are held, which ItemApplied says, without a LeaseEnd. A
	// claim whose lease is over and that nobody has ended since is told as held, since a
	// renewal of it may be about to commit; every other answer is final. T6.
	Look(ctx context.Context, claims []HeldClaim) (RenewResult, error)

	// Notify tells the other servers what n says. It is sent after the commit and may be
	// lost. Without Capabilities.Notifications it does nothing.
	Notify(ctx context.Context, n Notice) error

	// Listen calls heard for everything that Notify tells, on any server, until ctx ends,
	// and connects again by itself. It calls up with true whenever it is connected anew
	// (what was sent before may have been missed) and with false when it lost the
	// connection. It MUST notice a half-open connection within a second or so (W5).
	// Without Capabilities.Notifications it returns ErrNotSupported at once.
	Listen(ctx context.Context, heard func(Notice), up func(bool)) error

	// Now reads the database clock.
	Now(ctx context.Context) (time.Time, error)

	// Ready tells whether the store can serve: the database answers and its schema is
	// one that this build works with (ErrSchema otherwise, D7). Cheap enough to be
	// called every second.
	Ready(ctx context.Context) error

	// Maintain does what a replica owes the database from time to time: rows of old
	// claim calls, partitions ahead of time. Safe on all replicas at once, in small
	// transactions. The server calls it about once a minute.
	Maintain(ctx context.Context) error

	// Close waits for running calls and frees everything. No call may follow.
	Close() error
}

// Admin is what operators call, and what the server needs to know about queues.
type Admin interface {
	// CreateQueue makes a queue; ErrQueueExists where the name is taken. maxQueues > 0
	// bounds the number of queues (ErrQueueLimit).
	CreateQueue(ctx context.Context, name string, s QueueSettings, maxQueues int) (Queue, error)
	// GetQueue reads a queue by name; ErrQueueNotFound.
	GetQueue(ctx context.Context, name string) (Queue, error)
	// GetQueueByID reads a queue by id; ErrQueueNotFound.
	GetQueueByID(ctx context.Context, id int32) (Queue, error)
	// ListQueues returns up to limit queues with names after the given one, by bytes.
	ListQueues(ctx context.Context, after string, limit int) ([]Queue, error)
	// UpdateQueue stores all settings and raises the version. version 0 updates
	// whatever is there; another one that is not the present one: ErrVersionMismatch.
	UpdateQueue(ctx context.Context, name string, s QueueSettings, version int64) (Queue, error)
	// SetPaused pauses or resumes and raises the version where that changes something.
	SetPaused(ctx context.Context, name string, paused bool) (Queue, error)
	// QueueStats counts a queue now, in time proportional to what it holds and in small
	// statements where it is large. No call of a user waits for it: Count takes the counts
	// beside, and StoredStats reads them.
	QueueStats(ctx context.Context, queueID int32) (QueueStats, error)
	// StoredStats reads the counts that Count took last; AsOf is zero where there are none
	// yet. ErrQueueNotFound.
	StoredStats(ctx context.Context, queueID int32) (QueueStats, error)
	// Blocked tells whether a message of the queue waits behind the head of its ordering key.
	// It bounds what it looks at, so where a queue has very many keys it may say no.
	Blocked(ctx context.Context, queueID int32) (bool, error)
	// GetMessage reads a message, live or finished and kept; ErrMessageNotFound.
	GetMessage(ctx context.Context, ref Ref, payload bool) (Message, error)
	// ListMessages returns a page, newest first. Pages are stable under writes: a
	// message that does not change is on exactly one page.
	ListMessages(ctx context.Context, p ListMessagesParams) (ListMessagesResult, error)
}

// LockWait is the longest time that a write of many callers waits for one lock of another
// session, where it is set: an idempotency key (E6) or an ordering key that somebody holds. 0
// is the bounded wait of the backend, about two seconds. No statement waits for the row of a
// message then: a backend may look again for some milliseconds where many are held, and then the
// item is answered ItemHeld, and the caller asks again for it alone, without a LockWait. The
// bound may be rounded, to nothing too, and a backend that cannot bound the wait of a single
// statement waits as always for an ordering key. A lock that was not had in time is ErrLocked.
type LockWait = time.Duration

// EnqueueParams is one transaction.
type EnqueueParams struct {
	Messages []NewMessage
	LockWait LockWait
	// FindHeld, where LockWait is set, asks to find out first which keys of the messages other
	// sessions hold: nothing is inserted then, and the messages that need one of those are
	// answered EnqueueHeld. It is for calls that were locked out together (E6), and costs a
	// statement more. A backend finds what it can without a wait worth naming; what it does not
	// find is waited for as always, up to LockWait.
	FindHeld bool
}

// NewMessage is a message to insert. At most one of Delay and AvailableTime is set;
// a time that has passed means now (E7).
type NewMessage struct {
	QueueID        int32
	Payload        []byte
	ContentType    string
	Attributes     map[string]string
	IdempotencyKey string
	// ContentHash covers what E3 compares; set where IdempotencyKey is.
	ContentHash   [32]byte
	OrderingKey   string
	Priority      int32
	Delay         time.Duration
	AvailableTime time.Time
	MaxAttempts   int32 // 0 takes the setting of the queue, and is stored so
	ExpireTime    time.Time
	// WireBytes is the most that this message can take in an answer of Claim, payload
	// and all; C13.
	WireBytes int64
}

// EnqueueStatus is what became of a NewMessage.
type EnqueueStatus int

// The statuses.
const (
	EnqueueInserted EnqueueStatus = iota + 1
	// EnqueueDuplicate: the idempotency key names a message of the same content. E1.
	EnqueueDuplicate
	// EnqueueKeyReused: the idempotency key names a message of other content; nothing
	// of the whole call was inserted. E3.
	EnqueueKeyReused
	// EnqueueHeld: another session holds a key of the message, and EnqueueParams.FindHeld is
	// set; nothing of the whole call was inserted. E6.
	EnqueueHeld
)

// Enqueued answers one NewMessage.
type Enqueued struct {
	Status EnqueueStatus
	// Ref of the new message, or of the one that holds the key.
	Ref Ref
	// State of that message.
	State State
	// ReadyTime of a message that was inserted.
	ReadyTime time.Time
}

// EnqueueResult answers in the order of the messages.
type EnqueueResult struct {
	Items []Enqueued
	Now   time.Time
}

// ClaimParams asks for messages of one queue, for one or more calls.
type ClaimParams struct {
	QueueID int32
	Calls   []ClaimCall
	// MaxWireBytes bounds the sum of WireBytes over all rows taken; one row is always
	// allowed. 0: no bound.
	MaxWireBytes int64
	// ScanFrom tells, for some priorities, a place in the order of a claim before which
	// nothing is ready as far as the caller knows, so that the scan may start there.
	// Priorities without a hint are scanned from their start. Only a hint: a row before it
	// is not found by this call. Nil scans everything. Where it is not nil, though it be empty,
	// delayed messages that a claim moves to the ready set become ready now, since the hints
	// of another server would hide them by their old time.
	ScanFrom []ScanHint
	// DueFrom is a ready time before which no delayed message is left, as far as the caller
	// knows. Only a hint like ScanFrom; a backend may look at all of them.
	DueFrom time.Time
}

// ScanHint is a place in the ready set: the row of a priority with this ready time and
// position, or the first one after it. A backend may take the ready time alone.
type ScanHint struct {
	Priority  int32
	ReadyTime time.Time
	Position  int64
}

// FirstReadyParams names places of a queue, at most one of a priority.
type FirstReadyParams struct {
	QueueID int32
	Below   []ScanHint
	// DueBelow is the DueFrom of a claim.
	DueBelow time.Time
}

// FirstReady is what was found of one priority.
type FirstReady struct {
	Priority int32
	// Found: some message is claimable, before the place that was named where one was;
	// ReadyTime and Position are where the first of them stands.
	Found     bool
	ReadyTime time.Time
	Position  int64
}

// FirstReadyResult has all priorities that were named, and of those that the ready set has
// besides some, the largest first.
type FirstReadyResult struct {
	Priorities []FirstReady
	// Due is the earliest ready time before DueBelow of a delayed message, zero where there
	// is none.
	Due time.Time
	// Now is not later than the moment that the answer is true for.
	Now time.Time
}

// SortFirstReady puts them in the order of a FirstReadyResult.
func SortFirstReady(list []FirstReady) {
	slices.SortFunc(list, func(a, b FirstReady) int { return cmp.Compare(b.Priority, a.Priority) })
}

// ClaimCall is one caller of a Claim.
type ClaimCall struct {
	// Max is at least 1.
	Max int
	// Lease is above 0; the caller has checked the limits of the queue.
	Lease    time.Duration
	WorkerID string
	// ClaimID, where set, stands with a WorkerID. Two calls of one Claim MUST NOT have
	// the same ClaimID.
	ClaimID ClaimID
	// MaxPayloadBytes bounds the sum of the payloads of this call; one message is
	// always allowed. 0: no bound. A call that sets it MUST be alone in its Claim.
	MaxPayloadBytes int64
}

// ClaimStatus is what became of a ClaimCall.
type ClaimStatus int

// The statuses.
const (
	// ClaimServed: Messages are newly leased; there may be none.
	ClaimServed ClaimStatus = iota + 1
	// ClaimReplayed: the claim id named an earlier call; Messages are those of it that
	// are still held, and there may be none. C14.
	ClaimReplayed
	// ClaimIDReused: the claim id belongs to another worker; nothing changed. C14.
	ClaimIDReused
)

// ClaimOutcome answers one ClaimCall.
type ClaimOutcome struct {
	Status   ClaimStatus
	Messages []Claimed
}

// Claimed is a leased message, with its payload.
type Claimed struct {
	Message Message
	Token   Token
}

// ClaimResult answers in the order of the calls.
type ClaimResult struct {
	Calls []ClaimOutcome
	Now   time.Time
	// More: rows may be ready beyond those taken (a bound was met, or delayed rows
	// became ready), so claim again at once if anybody still waits.
	More bool
	// End: the calls were answered from all that was ready from ScanFrom on, and nothing of it
	// is left but what somebody else has locked. False where the queue is paused or a limit cut
	// the answer, and where the last call was answered by a repeat.
	End bool
	// DueEnd: no delayed message is left whose ready time is from DueFrom up to now, but what
	// somebody else has locked.
	DueEnd bool
	// NextReady is the earliest ready time of the delayed messages, zero where there is
	// none; meaningful where some call came back without messages, or where End is set.
	NextReady time.Time
	// Limit says which limit of the queue kept messages back: the calls got fewer than they
	// asked for, and all that it left. More is false then. L1, L2.
	Limit Limit
	// LimitEnd is when the limit lets the next message through, as far as the database
	// knows: the time of the next token, or the earliest end of a lease, which a settlement
	// may come before. Zero where there is none.
	LimitEnd time.Time
}

// HeldClaim names one claim.
type HeldClaim struct {
	Ref   Ref
	Token Token
}

// GiveBackParams is one call of Claim whose caller went away.
type GiveBackParams struct {
	QueueID int32
	ClaimID ClaimID // zero where the call had none
	Claims  []HeldClaim
}

// GiveBackResult tells what was given back.
type GiveBackResult struct {
	GivenBack int
	Now       time.Time
}

// Notice is what servers tell each other.
type Notice struct {
	// Queues of which messages may have become claimable, with a time before which none of
	// them is ready; zero where only something else changed, as the end of a limit.
	Queues []QueueReady
	// Claims are messages whose holder may have lost his claim, or was asked to stop (T6).
	// They name no token.
	Claims []Ref
	// Own: a transaction of somebody's own was committed that has something to place or to
	// finish (E12). It is only received: whoever commits sends it.
	Own bool
	// Hello tells of a server, where it has a number. The one that sends it hears it too.
	Hello Hello
}

// Hello is what a server says so that the others know of it.
type Hello struct {
	// Server is a random number, never zero, that tells servers apart. It is no secret.
	Server uint64
	// Asks: the others shall say hello too.
	Asks bool
}

// ItemStatus is what became of an item of Renew or Settle.
type ItemStatus int

// The statuses.
const (
	// ItemApplied: done.
	ItemApplied ItemStatus = iota + 1
	// ItemAlreadySettled: the same settlement with the same token was recorded before;
	// the facts are those of then. S5.
	ItemAlreadySettled
	// ItemSettled: this token was settled in another way; Outcome says how. S6, S12.
	ItemSettled
	// ItemLost: the caller does not hold the claim; Cause says why.
	ItemLost
	// ItemNotFound: no such message. S8.
	ItemNotFound
	// ItemUnknown: the row was locked for longer than the wait; nothing changed by this
	// call, and the caller may ask again.
	ItemUnknown
	// ItemKeyReused: the idempotency key of a follow-up names a message of other content, and
	// nothing changed: the claim is held as before. S10, E3.
	ItemKeyReused
	// ItemHeld: another session holds the row and LockWait is set. Nothing changed by this
	// call. Only the call without a LockWait finds out more.
	ItemHeld
)

// LostCause says why a claim is lost. S8.
type LostCause int

// The causes.
const (
	// LostLeaseExpired: the lease ran out; nobody has claimed the message since.
	LostLeaseExpired LostCause = iota + 1
	// LostSuperseded: another claim holds the message, or has finished it.
	LostSuperseded
	// LostRevoked: an operator took the claim away.
	LostRevoked
	// LostCancelled: the message was cancelled after the claim ended.
	LostCancelled
	// LostNotClaimed: the message is not claimed, and not by this token before.
	LostNotClaimed
)

// Renewal is one lease to renew.
type Renewal struct {
	Ref   Ref
	Token Token
	// Lease is the new length from now; 0 repeats the last one, cut to MaxLease.
	Lease    time.Duration
	MaxLease time.Duration
}

// RenewParams is a batch over any queues.
type RenewParams struct {
	Items    []Renewal
	LockWait LockWait
}

// Renewed answers one Renewal.
type Renewed struct {
	Status ItemStatus
	Cause  LostCause
	// Outcome where Status is ItemSettled.
	Outcome         Outcome
	LeaseEnd        time.Time
	CancelRequested bool
}

// RenewResult answers in the order of the items.
type RenewResult struct {
	Items []Renewed
	Now   time.Time
}

// Settlement is one thing to settle.
type Settlement struct {
	Ref    Ref
	Token  Token
	Action Action
	// Delay of a Release, and of a Retry where HasDelay is set; a Retry without it
	// takes the retry policy of the queue.
	Delay    time.Duration
	HasDelay bool
	// Error and ReasonCode of a Retry or DeadLetter; at most 2000 bytes, without NUL
	// (S9: the caller has cut it).
	Error      string
	ReasonCode string
	// Result of a Complete.
	Result []byte
	// FollowUps of a Complete are enqueued in its transaction, or not at all (S10). They are
	// checked as those of Enqueue are. One whose idempotency key is there already is answered
	// in place (E1); one that reuses a key for other content refuses the settlement (E3).
	FollowUps []NewMessage
}

// SettleParams is a batch over any queues.
type SettleParams struct {
	Items    []Settlement
	LockWait LockWait
}

// Settled answers one Settlement.
type Settled struct {
	Status ItemStatus
	Cause  LostCause
	// Outcome, DeadReason and the times are set for ItemApplied and ItemAlreadySettled;
	// Outcome also for ItemSettled.
	Outcome    Outcome
	DeadReason DeadReason
	// SettleTime is when it was settled: the complete time of a completion.
	SettleTime time.Time
	// AvailableTime is the next ready time of a message that was retried or released.
	AvailableTime time.Time
	// FollowUps of a completion, in their order; those of then for ItemAlreadySettled. One
	// whose idempotency key was there already (E1) is the message that holds the key, and
	// Duplicates says so for ItemApplied.
	FollowUps  []Ref
	Duplicates []bool
	// KeyReused is the index of the follow-up that ItemKeyReused is about.
	KeyReused int
}

// SettleResult answers in the order of the items.
type SettleResult struct {
	Items []Settled
	// Ready names the queues in which another message became claimable: the next one of an
	// ordering key, or a follow-up, a delayed one too, of whose time somebody has to know. It
	// may name one too many.
	Ready []int32
	Now   time.Time
}

// QueueStats are the counts of a queue at AsOf.
type QueueStats struct {
	Ready        int64 // claimable now
	Delayed      int64 // pending, not ready yet
	Blocked      int64 // pending behind the head of their ordering key
	Leased       int64 // lease running
	LeaseExpired int64 // processing, lease over
	Completed    int64 // and kept
	Dead         int64 // and kept
	OldestReady  time.Time
	AsOf         time.Time
}

// Live counts the messages that are not finished, which is what MaxMessages bounds (L3).
func (s QueueStats) Live() int64 {
	return s.Ready + s.Delayed + s.Blocked + s.Leased + s.LeaseExpired
}

// ListMessagesParams picks messages of one queue; all set fields must match.
type ListMessagesParams struct {
	QueueID       int32
	States        []State // empty: all
	OrderingKey   string
	DeadReasons   []DeadReason
	ReasonCodes   []string
	ErrorContains string
	WorkerID      string
	MinCreateTime time.Time // at or after
	MaxCreateTime time.Time // before
	Positions     []int64   // empty: all
	Payload       bool
	// Before is the position of the last message of the page before; 0 starts at the
	// newest.
	Before int64
	Limit  int
}

// ListMessagesResult is a page. Next is the Before of the next page, 0 on the last.
type ListMessagesResult struct {
	Messages []Message
	Next     int64
}
