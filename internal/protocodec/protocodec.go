// Package protocodec is the codec of gRPC for protobuf messages, with buffers that fit.
//
// That of gRPC takes its buffers from tiers of 32 KiB and 1 MiB and clears the whole of each before
// it is used: for a batch of a thousand small messages that is most of a MiB that is written for
// nothing, and was a sixteenth of the processor time of the server. Here a buffer is at
// most twice as large as what goes into it.
package protocodec

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that this one wraps
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Codec encodes and decodes as the codec "proto" of gRPC does.
type Codec struct {
	encoding.CodecV2

	buffers mem.BufferPool
}

// New makes a Codec. Its buffers are its own.
func New() Codec {
	buffers, err := mem.NewBinaryTieredBufferPool(8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22)
	if err != nil {
		panic(err) // the sizes are constants
	}
	return Codec{encoding.GetCodecV2("proto"), buffers}
}

// Buffers is where the buffers come from.
func (c Codec) Buffers() mem.BufferPool { return c.buffers }

// Marshal implements encoding.CodecV2.
func (c Codec) Marshal(v any) (mem.BufferSlice, error) {
	msg, ok := v.(proto.Message)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	size := proto.Size(msg)
	// The sizes of the parts were found by that.
	options := proto.MarshalOptions{UseCachedSize: true}
	if mem.IsBelowBufferPoolingThreshold(size) {
		encoded, err := options.Marshal(msg)
		if err != nil {
			return nil, fmt.Errorf("encode %T: %w", v, err)
		}
		return mem.BufferSlice{mem.SliceBuffer(encoded)}, nil
	}
	buf := c.buffers.Get(size)
	encoded, err := options.MarshalAppend((*buf)[:0], msg)
	if err != nil {
		c.buffers.Put(buf)
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	*buf = encoded
	return mem.BufferSlice{mem.NewBuffer(buf, c.buffers)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	msg, ok := v.(proto.Message)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(c.buffers)
	defer buf.Free()
	// The decoder copies what it keeps.
	if err := proto.Unmarshal(buf.ReadOnlyData(), msg); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	return nil
}
