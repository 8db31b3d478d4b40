package server

import (
	"google.golang.org/grpc"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// The calls of the contract that this build does not have. They say so with the same
// ErrorInfo as every other error.

// Work is not built yet.
func (a *api) Work(grpc.BidiStreamingServer[queueboxv1.WorkRequest, queueboxv1.WorkResponse]) error {
	return unimplemented("WorkerService.Work")
}

// unknownMethod answers calls of methods and services that no build of this version
// has.
func unknownMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return unimplemented("the method " + method)
}
