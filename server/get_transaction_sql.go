package server

import (
	"context"
	"errors"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// GetTransactionSql gives the statements that a worker or a producer runs in a transaction of
// his own (E12). They hold the id of the queue and the payload limit of this server.
func (a *api) GetTransactionSql(ctx context.Context, req *queueboxv1.GetTransactionSqlRequest) (*queueboxv1.GetTransactionSqlResponse, error) { //nolint:revive // the name is generated
	c := &check{}
	c.queue("queue", req.GetQueue())
	if err := c.err(); err != nil {
		return nil, err
	}
	q, err := a.catalog.id(ctx, req.GetQueue())
	if err != nil {
		return nil, err
	}
	got, err := a.store.TransactionSQL(storage.TransactionSQLParams{
		QueueID: q.ID, QueueName: q.Name, MaxPayloadBytes: a.cfg.MaxPayloadBytes,
	})
	if errors.Is(err, storage.ErrNotSupported) {
		return nil, &apiError{
			reason: queueboxv1.ErrorReason_ERROR_REASON_UNIMPLEMENTED,
			text:   "this storage has no statements for a transaction of your own; settle over gRPC, or use a storage that has them",
		}
	}
	if err != nil {
		return nil, err
	}
	out := &queueboxv1.GetTransactionSqlResponse{
		ContractVersion: int32(got.Version),
		Dialect:         a.store.Capabilities().Name,
		Statements:      make([]*queueboxv1.TransactionSql, len(got.Statements)),
	}
	for i, s := range got.Statements {
		out.Statements[i] = &queueboxv1.TransactionSql{Name: s.Name, Sql: s.SQL, Parameters: s.Parameters}
	}
	return out, nil
}
