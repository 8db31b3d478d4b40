package server

import "google.golang.org/grpc"

// unknownMethod answers calls of methods and services that no build of this version has,
// with the same ErrorInfo as every other error.
func unknownMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return unimplemented("the method " + method)
}
