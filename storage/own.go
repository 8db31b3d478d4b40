package storage

import (
	"context"
	"time"
)

// TransactionContract is the version of the statements of [TransactionSQL]: it rises when a
// statement, its parameters or its columns change.
const TransactionContract = 1

// Own is what a server does for those who enqueue and settle in transactions of their own
// (E12). They run the statements of TransactionSQL; Place and Finish do the rest after their
// commit. Both are safe on every replica at once, work in small transactions, whole or not
// at all, and pass over what another replica is at. What one call leaves, the next one
// takes up. The server calls each of them at least once a second.
type Own interface {
	// Place makes messages of what was committed to incoming: positions, ready times,
	// idempotency and ordering keys are decided here.
	Place(ctx context.Context, p PlaceParams) (PlaceResult, error)
	// Finish settles what committed transactions have marked, each as its mark says, with
	// the same end as Settle has.
	Finish(ctx context.Context, p FinishParams) (FinishResult, error)
	// TransactionSQL gives the statements. It asks nobody. ErrNotSupported where the backend
	// has none.
	TransactionSQL(p TransactionSQLParams) (TransactionSQL, error)
}

// PlaceParams bounds one call of Place.
type PlaceParams struct {
	// Limit bounds the messages looked at; at least 1.
	Limit int
}

// PlaceResult tells what one call of Place did.
type PlaceResult struct {
	// Placed messages are there now; Duplicates vanished, since their idempotency key names
	// a message of the same content (E1); Reused became dead messages that say so, since it
	// names one of other content (E3).
	Placed, Duplicates, Reused int
	// Refused rows can never become messages, for example since their queue is gone. They
	// stay where they are for an operator to look at, and are passed over from now on.
	Refused int
	// Ready names the queues in which messages are claimable now or later.
	Ready []QueueReady
	// More: there may be more to place, so call again at once.
	More bool
	Now  time.Time
}

// QueueReady says that a message of a queue is claimable from ReadyTime on.
type QueueReady struct {
	QueueID   int32
	ReadyTime time.Time
}

// FinishParams bounds one call of Finish.
type FinishParams struct {
	// Limit bounds the marks looked at; at least 1.
	Limit int
}

// FinishResult tells what one call of Finish did.
type FinishResult struct {
	// Finished holds the messages whose marks are finished now, with what became of them.
	Finished []FinishedMark
	// Ready names the queues in which messages are claimable now or later: those that were
	// retried, and the next ones of their keys. It may name one too many.
	Ready []QueueReady
	// More: there may be more to finish, so call again at once.
	More bool
	Now  time.Time
}

// FinishedMark is one message that Finish settled.
type FinishedMark struct {
	Ref     Ref
	Outcome Outcome
}

// TransactionSQLParams asks for the statements of one queue.
type TransactionSQLParams struct {
	QueueID int32
	// QueueName and MaxPayloadBytes are written into the statement that enqueues: what a
	// message takes in an answer, and what it may have at most.
	QueueName       string
	MaxPayloadBytes int64
}

// TransactionSQL holds the statements that a worker or a producer runs in a transaction of
// his own, at any isolation level (E12).
type TransactionSQL struct {
	Version    int
	Statements []TransactionStatement
}

// Names of the statements. Each of the three that settle marks exactly one message and
// returns one row, or returns no row: then the claim is lost and the whole transaction must
// be rolled back.
const (
	TransactionEnqueue    = "enqueue"
	TransactionComplete   = "complete"
	TransactionRetry      = "retry"
	TransactionDeadLetter = "dead_letter"
	// TransactionOutcome reads what a claim was settled as, by its token.
	TransactionOutcome = "outcome"
	// TransactionNotify is optional: as the last statement before COMMIT it saves the
	// server's poll. Only where the engine can.
	TransactionNotify = "notify"
)

// TransactionStatement is one statement: its text, with the placeholders of the engine, each
// of which stands in it once and in order, and what each of them takes.
type TransactionStatement struct {
	Name       string
	SQL        string
	Parameters []string
}
