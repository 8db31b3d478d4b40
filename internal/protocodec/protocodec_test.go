package protocodec_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/internal/protocodec"
)

// batch is a message of about so many bytes.
func batch(bytes int) *queueboxv1.BatchEnqueueRequest {
	b := &queueboxv1.BatchEnqueueRequest{}
	const items = 100
	for range items * min(bytes, 1) {
		b.Requests = append(b.Requests, &queueboxv1.EnqueueRequest{Queue: "q", Payload: make([]byte, bytes/items), Attributes: map[string]string{"a": "b"}})
	}
	return b
}

// What one codec writes the other reads, whatever the size, also where it comes in pieces.
func TestCodecIsThatOfGRPC(t *testing.T) {
	ours, theirs := protocodec.New(), encoding.GetCodecV2("proto")
	require.Equal(t, theirs.Name(), ours.Name())
	for _, size := range []int{0, 200, 1000, 1024, 1100, 40_000, 1 << 20, 5 << 20} {
		msg := batch(size)
		for _, way := range [][2]encoding.CodecV2{{ours, theirs}, {theirs, ours}, {ours, ours}} {
			for range 2 { // the second time with the buffers of the first
				data, err := way[0].Marshal(msg)
				require.NoError(t, err)
				raw := data.Materialize()
				data.Free()
				length := len(raw) // not require.Len, which writes all of it out
				require.Equal(t, proto.Size(msg), length)
				half := len(raw) / 2
				pieces := mem.BufferSlice{mem.SliceBuffer(raw[:half]), mem.SliceBuffer(raw[half:])}
				got := &queueboxv1.BatchEnqueueRequest{}
				require.NoError(t, way[1].Unmarshal(pieces, got))
				require.True(t, proto.Equal(msg, got))
			}
		}
	}
}

func TestCodecErrors(t *testing.T) {
	c := protocodec.New()
	_, err := c.Marshal(&queueboxv1.EnqueueRequest{Queue: "\xff"})
	require.ErrorContains(t, err, "UTF-8")
	_, err = c.Marshal("no message")
	require.Error(t, err)
	require.Error(t, c.Unmarshal(mem.BufferSlice{mem.SliceBuffer("\xff")}, &queueboxv1.EnqueueRequest{}))
	require.Error(t, c.Unmarshal(nil, "no message"))
}

// A batch of a thousand small messages takes a buffer of its size.
func TestBuffersFit(t *testing.T) {
	buffers := protocodec.New().Buffers()
	for _, size := range []int{1025, 33_000, 130_000, 600_000, 3 << 20} {
		buf := buffers.Get(size)
		length := len(*buf) // not require.Len, which writes all of it out
		require.Equal(t, size, length)
		require.LessOrEqual(t, cap(*buf), 2*size)
		buffers.Put(buf)
	}
}
