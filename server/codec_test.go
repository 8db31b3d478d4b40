package server

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// slowDecode is the plain way to decode a request, with a walk by reflection over every
// message: what the codec says must be what it says.
func slowDecode(data []byte, msg proto.Message) error {
	if err := slowOverlong(data, msg.ProtoReflect().Descriptor()); err != nil {
		return err
	}
	if err := proto.Unmarshal(data, msg); err != nil {
		return undecodable(data, msg, err)
	}
	return unknownFields(msg)
}

// decodable are requests of every shape: lists, lists in lists, maps, choices, packed numbers.
func decodable() []proto.Message {
	enqueue := func() *queueboxv1.EnqueueRequest {
		return &queueboxv1.EnqueueRequest{
			Queue: "q", Payload: []byte("body"), Attributes: map[string]string{"a": "b", "c": ""}, DelayMs: 7, Priority: -3,
			ExpireTime: &timestamppb.Timestamp{Seconds: 12, Nanos: 5}, OrderingKey: "k",
		}
	}
	complete := &queueboxv1.CompleteRequest{
		Queue: "q", MessageId: "m", ClaimToken: "t", Result: []byte{1}, FollowUps: []*queueboxv1.EnqueueRequest{enqueue(), enqueue()},
	}
	return []proto.Message{
		enqueue(), complete,
		&queueboxv1.BatchEnqueueRequest{Requests: []*queueboxv1.EnqueueRequest{enqueue(), {}, enqueue()}},
		&queueboxv1.BatchSettleRequest{Items: []*queueboxv1.SettleItem{
			{Action: &queueboxv1.SettleItem_Complete{Complete: complete}},
			{Action: &queueboxv1.SettleItem_Retry{Retry: &queueboxv1.RetryRequest{Queue: "q", DelayMs: proto.Int64(0), Error: "e"}}},
			{},
		}},
		&queueboxv1.HeartbeatRequest{Sequence: 1, Queue: "q", Renewals: []*queueboxv1.RenewItem{{MessageId: "m", LeaseMs: 1}}},
		&queueboxv1.ClaimRequest{Queue: "q", MaxMessages: 3, WaitMs: 9},
		&queueboxv1.CancelRequest{Queue: "q", Target: &queueboxv1.CancelRequest_MessageId{MessageId: "m"}},
		&queueboxv1.ListMessagesRequest{Queue: "q", Filter: &queueboxv1.MessageFilter{
			States: []queueboxv1.MessageState{1, 2, 300}, MessageIds: []string{"m"},
		}},
		&queueboxv1.WorkRequest{
			Settlements: []*queueboxv1.SettleItem{{Action: &queueboxv1.SettleItem_Complete{Complete: complete}}},
			Renewals:    []*queueboxv1.RenewItem{{MessageId: "m"}},
		},
	}
}

// requireSameVerdict decodes both ways.
func requireSameVerdict(t *testing.T, codec frameCodec, data []byte, msg proto.Message) error {
	t.Helper()
	fast, slow := msg.ProtoReflect().New().Interface(), msg.ProtoReflect().New().Interface()
	want := slowDecode(data, slow)
	got := codec.decode(mem.BufferSlice{mem.SliceBuffer(data)}, fast)
	if want == nil {
		require.NoError(t, got)
		require.True(t, proto.Equal(slow, fast))
		return nil
	}
	require.EqualError(t, got, want.Error())
	return got
}

// FuzzE13TheScanSaysWhatTheWalkSays decodes whatever bytes, as every type of request, with the
// scan and with the walk by reflection.
func FuzzE13TheScanSaysWhatTheWalkSays(f *testing.F) {
	for i, msg := range decodable() {
		data, err := proto.Marshal(msg)
		require.NoError(f, err)
		f.Add(uint8(i), data)
		f.Add(uint8(i+1), data)
		f.Add(uint8(i), protowire.AppendVarint(protowire.AppendTag(data, 99, protowire.VarintType), 1))
	}
	codec := newFrameCodec()
	types := decodable()
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		_ = requireSameVerdict(t, codec, data, types[int(which)%len(types)])
	})
}

// TestE13AnUnknownFieldIsFoundWhereverItStands puts a field that this build does not know, or
// one of another type than it knows, at every place of every request, and cuts and changes bytes
// at random.
func TestE13AnUnknownFieldIsFoundWhereverItStands(t *testing.T) {
	codec := newFrameCodec()
	strange := map[string][]byte{
		"a number that is not known":  protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1),
		"a text that is not known":    protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "x"),
		"a group":                     protowire.AppendTag(protowire.AppendTag(nil, 77, protowire.StartGroupType), 77, protowire.EndGroupType),
		"the first field as a number": protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), 1),
	}
	for _, msg := range decodable() {
		for name, extra := range strange {
			places := 0
			everyMessage(msg.ProtoReflect(), func(m protoreflect.Message) {
				if wellKnown(m.Descriptor()) {
					return
				}
				places++
				before := m.GetUnknown()
				m.SetUnknown(extra)
				data, err := proto.Marshal(msg)
				m.SetUnknown(before)
				require.NoError(t, err)
				err = requireSameVerdict(t, codec, data, msg)
				require.Error(t, err, "%s in %s of %T", name, m.Descriptor().FullName(), msg)
			})
			require.NotZero(t, places)
		}
		data, err := proto.Marshal(msg)
		require.NoError(t, err)
		require.NoError(t, requireSameVerdict(t, codec, data, msg))
		random := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			broken := append([]byte(nil), data...)
			for range 1 + random.IntN(3) {
				broken[random.IntN(len(broken))] = byte(random.Uint32())
			}
			_ = requireSameVerdict(t, codec, broken[:random.IntN(len(broken)+1)], msg)
		}
	}
}

// TestTheScanOfARequestAllocatesNothing: it runs over every request.
func TestTheScanOfARequestAllocatesNothing(t *testing.T) {
	p := &plans{}
	for _, msg := range decodable() {
		data, err := proto.Marshal(msg)
		require.NoError(t, err)
		desc := msg.ProtoReflect().Descriptor()
		p.of(desc)
		require.Zero(t, testing.AllocsPerRun(10, func() {
			var s scan
			s.message(data, p.of(desc))
			if s.strange || s.err() != nil {
				t.Error("a good request looks strange")
			}
		}), "%T", msg)
	}
}

func everyMessage(m protoreflect.Message, f func(protoreflect.Message)) {
	f(m)
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Kind() != protoreflect.MessageKind || fd.IsMap():
		case fd.IsList():
			for i := range v.List().Len() {
				everyMessage(v.List().Get(i).Message(), f)
			}
		default:
			everyMessage(v.Message(), f)
		}
		return true
	})
}

// slowCounter counts the entries of lists.
type slowCounter struct {
	total int
	field string // the first list that is too long
	most  int
}

// slowOverlong returns the error for a request whose lists are too long, nil where none is.
// What is no valid message it leaves to the decoder.
func slowOverlong(data []byte, desc protoreflect.MessageDescriptor) error {
	var t slowCounter
	t.message(data, desc, "")
	c := &check{}
	switch {
	case t.field != "":
		c.wrong(t.field, "has more than %d items; at most %d are allowed", t.most, t.most)
	case t.total > maxElements:
		c.wrong("(request)", "has more than %d items in all; send several smaller calls", maxElements)
	}
	return c.err()
}

// message counts the lists of one message. It returns false where there is no need to
// go on.
func (t *slowCounter) message(data []byte, desc protoreflect.MessageDescriptor, path string) bool {
	seen := map[protowire.Number]int{}
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			return false
		}
		data = data[n:]
		n = protowire.ConsumeFieldValue(num, typ, data)
		if n < 0 {
			return false
		}
		value := data[:n]
		data = data[n:]
		fd := desc.Fields().ByNumber(num)
		if fd == nil {
			continue
		}
		name := path + string(fd.Name())
		if fd.Cardinality() == protoreflect.Repeated {
			most := maxBatchItems
			if fd.IsMap() {
				most = maxAttributes
			}
			more := slowEntries(fd, typ, value)
			seen[num] += more
			t.total += more
			if seen[num] > most {
				t.field, t.most = name, most
				return false
			}
			if t.total > maxElements {
				return false
			}
			name = fmt.Sprintf("%s[%d]", name, seen[num]-1)
		}
		if fd.Kind() != protoreflect.MessageKind || fd.IsMap() || typ != protowire.BytesType {
			continue
		}
		inner, n := protowire.ConsumeBytes(value)
		if n < 0 || !t.message(inner, fd.Message(), name+".") {
			return false
		}
	}
	return true
}

// slowEntries counts what one field value adds to a list: numbers may come packed.
func slowEntries(fd protoreflect.FieldDescriptor, typ protowire.Type, value []byte) int {
	if !fd.IsPacked() || typ != protowire.BytesType {
		return 1
	}
	packed, n := protowire.ConsumeBytes(value)
	if n < 0 {
		return 1
	}
	count := 0
	for _, b := range packed {
		if b < 0x80 {
			count++ // the last byte of a varint
		}
	}
	return count
}
