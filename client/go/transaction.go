package queuebox

import (
	"context"
	"fmt"
	"sync"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// TransactionContract is the version of the statements that this client knows how to run.
const TransactionContract = 1

// TransactionSQL holds the statements with which a transaction of your own, in the database that
// the server keeps its queues in, enqueues and settles (E12). The packages pgxtx and sqltx run
// them; docs/own-transaction.md has their parameters and columns.
type TransactionSQL struct {
	// Dialect is the database: "postgres", "sqlite", ….
	Dialect string
	// Version is the version of the contract.
	Version int
	// Enqueue appends a message. Complete, Retry and DeadLetter mark a claim and return one row,
	// or none where the claim is lost. Outcome reads what a claim was settled as. Notify saves
	// the server's poll; it is empty where the database cannot notify.
	Enqueue, Complete, Retry, DeadLetter, Outcome, Notify string
}

// transactionTTL is how long statements are kept: a server that is upgraded may have others.
const transactionTTL = time.Minute

// transactions remembers the statements of queues.
type transactions struct {
	mu      sync.Mutex
	byQueue map[string]knownTransaction
}

type knownTransaction struct {
	sql  TransactionSQL
	read time.Time
}

// TransactionSQL asks the server for the statements of a queue and remembers them for a minute.
// Its error matches ErrUnimplemented where the server's storage has none.
func (c *Client) TransactionSQL(ctx context.Context, queue string) (TransactionSQL, error) {
	c.transactions.mu.Lock()
	known, ok := c.transactions.byQueue[queue]
	c.transactions.mu.Unlock()
	if ok && now().Sub(known.read) < transactionTTL {
		return known.sql, nil
	}
	read := now()
	resp, err := queueboxv1.NewAdminServiceClient(c.conn).GetTransactionSql(ctx, &queueboxv1.GetTransactionSqlRequest{Queue: queue})
	if err != nil {
		e := fromRPC("transaction sql", err)
		if ok && e.unanswered() && ctx.Err() == nil {
			return known.sql, nil // the server is away for a moment; the database need not be
		}
		return TransactionSQL{}, c.orClosed(e)
	}
	if resp.GetContractVersion() != TransactionContract {
		return TransactionSQL{}, fmt.Errorf("queuebox: transaction sql: the server speaks version %d of the statements, this client version %d; use matching releases",
			resp.GetContractVersion(), TransactionContract)
	}
	sql := TransactionSQL{Dialect: resp.GetDialect(), Version: int(resp.GetContractVersion())}
	for _, s := range resp.GetStatements() {
		switch s.GetName() {
		case "enqueue":
			sql.Enqueue = s.GetSql()
		case "complete":
			sql.Complete = s.GetSql()
		case "retry":
			sql.Retry = s.GetSql()
		case "dead_letter":
			sql.DeadLetter = s.GetSql()
		case "outcome":
			sql.Outcome = s.GetSql()
		case "notify":
			sql.Notify = s.GetSql()
		}
	}
	c.transactions.mu.Lock()
	defer c.transactions.mu.Unlock()
	if c.transactions.byQueue == nil {
		c.transactions.byQueue = make(map[string]knownTransaction)
	}
	c.transactions.byQueue[queue] = knownTransaction{sql: sql, read: read}
	return sql, nil
}

// Surrendered is a claim in the hands of a transaction of your own. It ends with one of Settled,
// Lost, Unknown and Return; what comes after the first of them does nothing.
type Surrendered struct {
	handle *Handle
	once   sync.Once
}

// Surrender hands the claim over to a transaction that will mark it (E12). Renewal stops, as
// before every settlement (K4), and so does the local deadline: from the mark on the row lock of
// the transaction holds the claim, however long it takes, and a context that ended with the lease
// would end the transaction. Most programs call the functions of pgxtx or sqltx, which do this.
//
// Its errors are those of Complete: ErrClaimLost, and ErrAlreadySettled where the handle was
// settled or surrendered before.
func (h *Handle) Surrender() (*Surrendered, error) {
	if _, _, err := h.begin("surrender"); err != nil {
		return nil, err
	}
	return &Surrendered{handle: h}, nil
}

// Client returns the client of the claim.
func (s *Surrendered) Client() *Client { return s.handle.renewer.client }

// Queue is the queue of the message.
func (s *Surrendered) Queue() string { return s.handle.message.Queue }

// MessageID is the first parameter of the statements.
func (s *Surrendered) MessageID() string { return s.handle.message.ID }

// Token is the second parameter of the statements. It is a secret: never log it.
func (s *Surrendered) Token() string { return s.handle.token }

// Settled ends the handle: the transaction was committed.
func (s *Surrendered) Settled() { s.once.Do(func() { s.handle.finish(ErrAlreadySettled) }) }

// Lost ends the handle and returns why: the mark returned no row, and everything was rolled back.
func (s *Surrendered) Lost() error {
	s.once.Do(func() {
		s.handle.finish(fmt.Errorf("queuebox: mark: %w", ErrClaimLost))
	})
	return context.Cause(s.handle.ctx)
}

// Unknown ends the handle where nobody can tell whether the transaction was committed. The message
// is delivered again if it was not.
func (s *Surrendered) Unknown(err error) {
	s.once.Do(func() { s.handle.finish(fmt.Errorf("queuebox: own transaction: %w: %w", ErrOutcomeUnknown, err)) })
}

// Return puts the handle back under renewal: the transaction was rolled back, and the claim is as
// it was, unless its lease has ended meanwhile.
func (s *Surrendered) Return() { s.once.Do(s.handle.reopen) }
