package drive

import (
	"context"
	"fmt"
	"net"
	"runtime"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// echo answers the three plain calls at once, with messages of the size that the real server
// sends: what gRPC alone takes for a cycle on this machine.
type echo struct {
	queueboxv1.UnimplementedProducerServiceServer
	queueboxv1.UnimplementedWorkerServiceServer

	claimed *queueboxv1.ClaimResponse
}

const (
	echoID    = "m_00000000000000000000000001"
	echoToken = "t_0000000000000000000000000000000000000001"
)

func (*echo) Enqueue(context.Context, *queueboxv1.EnqueueRequest) (*queueboxv1.EnqueueResponse, error) {
	return &queueboxv1.EnqueueResponse{MessageId: echoID, State: queueboxv1.MessageState_MESSAGE_STATE_PENDING, ServerTime: timestamppb.Now()}, nil
}

func (e *echo) Claim(context.Context, *queueboxv1.ClaimRequest) (*queueboxv1.ClaimResponse, error) {
	return e.claimed, nil
}

func (*echo) Complete(context.Context, *queueboxv1.CompleteRequest) (*queueboxv1.CompleteResponse, error) {
	return &queueboxv1.CompleteResponse{CompleteTime: timestamppb.Now(), ServerTime: timestamppb.Now()}, nil
}

func (*echo) BatchEnqueue(context.Context, *queueboxv1.BatchEnqueueRequest) (*queueboxv1.BatchEnqueueResponse, error) {
	return &queueboxv1.BatchEnqueueResponse{}, nil
}

// ServeEcho serves until ctx ends.
func ServeEcho(ctx context.Context, address string, payload int) error {
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("echo server: %w", err)
	}
	now := timestamppb.Now()
	e := &echo{claimed: &queueboxv1.ClaimResponse{ServerTime: now, Messages: []*queueboxv1.ClaimedMessage{{
		Message: &queueboxv1.Message{
			MessageId: echoID, Queue: "bench", Payload: []byte(randomText(payload)), Attempt: 1, CreateTime: now, AvailableTime: now,
			State: queueboxv1.MessageState_MESSAGE_STATE_PROCESSING,
		},
		ClaimToken: echoToken, LeaseExpireTime: now, LeaseRemainingMs: 30_000,
	}}}}
	s := grpc.NewServer(grpc.NumStreamWorkers(uint32(runtime.GOMAXPROCS(0))))
	queueboxv1.RegisterProducerServiceServer(s, e)
	queueboxv1.RegisterWorkerServiceServer(s, e)
	go func() {
		<-ctx.Done()
		s.Stop()
	}()
	if err := s.Serve(lis); err != nil {
		return fmt.Errorf("echo server: %w", err)
	}
	return nil
}
