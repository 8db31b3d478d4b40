package server

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// An empty item of a list takes two bytes on the wire and a hundred times that in
// memory. So the lists of a request are counted before it is decoded: a request of a few
// megabytes must not grow to gigabytes only to be refused.

// maxElements bounds the entries of all lists of a request together: 1000 messages with
// 64 attributes each fit in.
const maxElements = 100_000

// counter counts the entries of lists.
type counter struct {
	total int
	field string // the first list that is too long
	most  int
}

// overlong returns the error for a request whose lists are too long, nil where none is.
// What is no valid message it leaves to the decoder.
func overlong(data []byte, desc protoreflect.MessageDescriptor) error {
	var t counter
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
func (t *counter) message(data []byte, desc protoreflect.MessageDescriptor, path string) bool {
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
			more := entries(fd, typ, value)
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

// entries counts what one field value adds to a list: numbers may come packed.
func entries(fd protoreflect.FieldDescriptor, typ protowire.Type, value []byte) int {
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
