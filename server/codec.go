package server

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/protocodec"
)

// A request that cannot be decoded fails inside gRPC, before any interceptor, with
// INTERNAL and a text. So requests are decoded into a frame, which never fails, and the
// error travels through the interceptors like that of a handler: it is counted, logged
// and mapped, and names the field.

// frame is a request that is being decoded.
type frame struct {
	msg proto.Message
	err error
}

// frameCodec is the usual codec, and decodes frames.
type frameCodec struct {
	protocodec.Codec

	plans *plans
}

func newFrameCodec() frameCodec { return frameCodec{protocodec.New(), &plans{}} }

func (c frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return c.Codec.Unmarshal(data, v)
	}
	f.err = c.decode(data, f.msg)
	return nil
}

// decode decodes a request and says what is wrong with it.
func (c frameCodec) decode(data mem.BufferSlice, msg proto.Message) error {
	// One piece for the scan and the decoder; it is a copy only where gRPC read several.
	buf := data.MaterializeToBuffer(c.Buffers())
	defer buf.Free()
	raw := buf.ReadOnlyData()
	var s scan
	s.message(raw, c.plans.of(msg.ProtoReflect().Descriptor()))
	if err := s.err(); err != nil {
		return err
	}
	// The decoder copies what it keeps.
	if err := proto.Unmarshal(raw, msg); err != nil {
		return undecodable(raw, msg, err)
	}
	if s.strange {
		return unknownFields(msg)
	}
	return nil
}

// describe returns the description of a service whose requests are decoded into
// frames.
func describe(desc *grpc.ServiceDesc) *grpc.ServiceDesc {
	out := *desc
	out.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		out.Methods[i] = grpc.MethodDesc{MethodName: m.MethodName, Handler: decodeUnary(m.Handler)}
	}
	out.Streams = make([]grpc.StreamDesc, len(desc.Streams))
	for i, s := range desc.Streams {
		out.Streams[i] = s
		out.Streams[i].Handler = func(srv any, stream grpc.ServerStream) error {
			return s.Handler(srv, frameStream{stream})
		}
	}
	return &out
}

func decodeUnary(next grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		var f frame
		decode := func(v any) error {
			f.msg = v.(proto.Message)
			return dec(&f)
		}
		return next(srv, ctx, decode, func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if f.err != nil {
				handler = func(context.Context, any) (any, error) { return nil, f.err }
			}
			if intercept == nil {
				return handler(ctx, req)
			}
			return intercept(ctx, req, info, handler)
		})
	}
}

// frameStream decodes the requests of a stream.
type frameStream struct {
	grpc.ServerStream
}

func (s frameStream) RecvMsg(m any) error {
	f := frame{msg: m.(proto.Message)}
	if err := s.ServerStream.RecvMsg(&f); err != nil {
		return err
	}
	return f.err
}

// undecodable says what is wrong with a request that is no valid message.
func undecodable(data []byte, msg proto.Message, cause error) error {
	desc := msg.ProtoReflect().Descriptor()
	c := &check{}
	if field := invalidText(data, desc); field != "" {
		c.wrong(field, "is not valid UTF-8")
		return c.err()
	}
	return &apiError{
		reason: queueboxv1.ErrorReason_ERROR_REASON_INVALID_ARGUMENT,
		text:   fmt.Sprintf("the request is not a valid %s; build it with the proto files of this server", desc.FullName()),
		violations: []violation{{
			field: "(request)", text: "cannot be decoded", reason: queueboxv1.ErrorReason_ERROR_REASON_INVALID_ARGUMENT,
		}},
		cause: cause,
	}
}

// invalidText finds the first string field that is not valid UTF-8.
func invalidText(data []byte, desc protoreflect.MessageDescriptor) string {
	seen := map[protowire.Number]int{}
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			return ""
		}
		data = data[n:]
		if typ != protowire.BytesType {
			n = protowire.ConsumeFieldValue(num, typ, data)
			if n < 0 {
				return ""
			}
			data = data[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return ""
		}
		data = data[n:]
		fd := desc.Fields().ByNumber(num)
		if fd == nil {
			continue
		}
		name := string(fd.Name())
		if fd.IsList() {
			name = fmt.Sprintf("%s[%d]", name, seen[num])
			seen[num]++
		}
		switch fd.Kind() { //nolint:exhaustive // only these hold text
		case protoreflect.StringKind:
			if !utf8.Valid(value) {
				return name
			}
		case protoreflect.MessageKind:
			inner := invalidText(value, fd.Message())
			switch {
			case inner == "":
			case fd.IsMap():
				return name
			default:
				return name + "." + inner
			}
		}
	}
	return ""
}

// unknownFields refuses a request with a field that this build does not know: its rule
// would be ignored (E13).
func unknownFields(msg proto.Message) error {
	var err error
	walkUnknown(msg.ProtoReflect(), "", func(path string, num protowire.Number) {
		if err == nil {
			c := &check{}
			c.notBuilt(fmt.Sprintf("%s%d", path, num), true)
			err = c.err()
		}
	})
	return err
}

// wellKnown tells the types that come with protobuf. Nobody adds a field with a rule to them.
func wellKnown(desc protoreflect.MessageDescriptor) bool {
	return strings.HasPrefix(string(desc.FullName()), "google.protobuf.")
}

func walkUnknown(m protoreflect.Message, path string, found func(path string, num protowire.Number)) {
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		if num, _, n := protowire.ConsumeTag(unknown); n > 0 {
			found(path, num)
		}
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if fd.Kind() != protoreflect.MessageKind || fd.IsMap() || !m.Has(fd) {
			continue
		}
		if wellKnown(fd.Message()) {
			continue
		}
		if !fd.IsList() {
			walkUnknown(m.Get(fd).Message(), path+string(fd.Name())+".", found)
			continue
		}
		list := m.Get(fd).List()
		for j := range list.Len() {
			walkUnknown(list.Get(j).Message(), fmt.Sprintf("%s%s[%d].", path, fd.Name(), j), found)
		}
	}
}
