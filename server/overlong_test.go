package server

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// TestOverlongListsAreRefusedBeforeTheyAreDecoded: two bytes on the wire are an empty
// item of a list, so a request that fits the size limit could fill the memory of the
// server.
func TestOverlongListsAreRefusedBeforeTheyAreDecoded(t *testing.T) {
	empty := func(num protowire.Number, n int) []byte {
		return bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), nil), n)
	}
	nested := func(num protowire.Number, inner []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), inner)
	}
	packed := func(num protowire.Number, n int) []byte { return nested(num, make([]byte, n)) }
	item := nested(2, empty(5, 900)) // an item of BatchSettle may hold a list, too

	for name, tc := range map[string]struct {
		msg   proto.Message
		data  []byte
		field string
	}{
		"items of a batch":      {&queueboxv1.BatchEnqueueRequest{}, empty(1, 1001), "requests"},
		"leases of a batch":     {&queueboxv1.BatchRenewRequest{}, empty(2, 1001), "items"},
		"leases of a stream":    {&queueboxv1.HeartbeatRequest{}, empty(4, 1001), "renewals"},
		"attributes":            {&queueboxv1.EnqueueRequest{}, empty(4, 65), "attributes"},
		"attributes of an item": {&queueboxv1.BatchEnqueueRequest{}, append(empty(1, 3), nested(1, empty(4, 65))...), "requests[3].attributes"},
		"packed numbers":        {&queueboxv1.ListMessagesRequest{}, nested(2, packed(1, 1001)), "filter.states"},
		"texts":                 {&queueboxv1.ListMessagesRequest{}, nested(2, empty(8, 1001)), "filter.message_ids"},
		"all lists together":    {&queueboxv1.BatchSettleRequest{}, bytes.Repeat(nested(1, nested(1, empty(5, 900))), 150), "(request)"},
		"one field again and again": {
			&queueboxv1.BatchSettleRequest{}, nested(1, bytes.Repeat(nested(1, empty(5, 900)), 150)), "(request)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var bad *apiError
			require.ErrorAs(t, overlong(tc.data, tc.msg), &bad)
			require.Equal(t, queueboxv1.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, bad.reason)
			require.Equal(t, tc.field, bad.violations[0].field)
		})
	}
	for name, tc := range map[string]struct {
		desc proto.Message
		data []byte
	}{
		"as many as are allowed": {&queueboxv1.BatchEnqueueRequest{}, empty(1, 1000)},
		"as many attributes":     {&queueboxv1.EnqueueRequest{}, empty(4, 64)},
		"two lists in an item":   {&queueboxv1.BatchSettleRequest{}, nested(1, item)},
		"no message at all":      {&queueboxv1.EnqueueRequest{}, []byte{0xff}},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, overlong(tc.data, tc.desc))
		})
	}
}

func overlong(data []byte, msg proto.Message) error {
	var s scan
	s.message(data, new(plans).of(msg.ProtoReflect().Descriptor()))
	return s.err()
}

// TestViolationsAreBounded: a status travels in headers, which clients bound.
func TestViolationsAreBounded(t *testing.T) {
	c := &check{}
	for range 10 * maxViolations {
		c.wrong("field", "is wrong")
	}
	require.Len(t, c.violations, maxViolations)
}
