package server

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/dispatch"
	"github.com/queuebox/queuebox/storage"
)

// statementTimeout bounds a storage call. It is the server's, not the caller's: to
// cancel a statement costs its connection, and a write whose caller left is worth
// finishing.
const statementTimeout = 10 * time.Second

// api holds the handlers of the three services, one file for each RPC.
type api struct {
	queueboxv1.UnimplementedWorkerServiceServer
	queueboxv1.UnimplementedProducerServiceServer
	queueboxv1.UnimplementedAdminServiceServer

	cfg      Config
	store    storage.Store
	log      *slog.Logger
	now      func() time.Time
	jitter   func() float64
	catalog  *catalog
	clock    *dbClock
	stats    *statsCache
	keyed    *keyedQueues
	full     *fullness
	blocked  *blockedCache
	dispatch *dispatch.Dispatcher
	join     *dispatch.Joiner
	errors   *errorMapper
	metrics  *metrics
	streams  *streams
	// streamBytes bounds what the frames of all streams take.
	streamBytes *streamBytes
	ends        *ends
	signals     *signals
	own         *own
	// life ends when the drain has: nobody is left then to hear of a statement.
	life context.Context //nolint:containedctx // statements live with the server, not with their caller
	end  context.CancelFunc
	// answerBytes bounds the answer of a Claim or a page of messages.
	answerBytes int64
}

// statement is the context of a storage call for a caller.
func (a *api) statement(ctx context.Context) (context.Context, context.CancelFunc) {
	call, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), statementTimeout, dispatch.ErrNoAnswer)
	stop := context.AfterFunc(a.life, cancel)
	return call, func() {
		stop()
		cancel()
	}
}

// serverTime is the database clock, for an answer that has no statement of its own to
// take it from (D11).
func (a *api) serverTime(ctx context.Context) (*timestamppb.Timestamp, error) {
	now, err := a.clock.get(ctx)
	if err != nil {
		return nil, err
	}
	return timestamppb.New(now), nil
}
