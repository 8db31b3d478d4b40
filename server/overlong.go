package server

import (
	"fmt"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A request is scanned once before it is decoded. An empty item of a list takes two bytes on
// the wire and a hundred times that in memory, so the lists are counted: a request of a few
// megabytes must not grow to gigabytes only to be refused. The same pass notes whether there is
// any field that this build does not know, so that the decoded message, which is dear to walk
// by reflection, is walked only where there may be one.

// maxElements bounds the entries of all lists of a request together: 1000 messages with
// 64 attributes each fit in.
const maxElements = 100_000

// plan is what a scan has to know of a message type.
type plan struct {
	// fields by number; those of our messages are small.
	fields []planField
	// lists is the number of repeated fields.
	lists int
}

type planField struct {
	known bool
	typ   protowire.Type
	// packed: a list of numbers, which may come packed or not.
	packed bool
	// list is the place of a repeated field among those of its message, from 1; most is the
	// number of entries that it may have.
	list, most int
	// inner is the plan of a message, nil for a map, whose entries hold nothing but texts.
	inner *plan
	name  protoreflect.Name
}

// maxPlanned bounds the numbers of fields that a plan holds; a message with a larger one would
// be scanned as if it did not know it, which costs a walk and is never wrong.
const maxPlanned = 256

// maxLists bounds the repeated fields of a message, for counts that live on the stack.
const maxLists = 8

// plans holds the plan of every message type that was scanned.
type plans struct {
	byType sync.Map // of *plan, by protoreflect.FullName
}

func (p *plans) of(desc protoreflect.MessageDescriptor) *plan {
	if known, ok := p.byType.Load(desc.FullName()); ok {
		return known.(*plan)
	}
	made := newPlan(desc, map[protoreflect.FullName]*plan{})
	p.byType.Store(desc.FullName(), made)
	return made
}

func newPlan(desc protoreflect.MessageDescriptor, made map[protoreflect.FullName]*plan) *plan {
	if p := made[desc.FullName()]; p != nil {
		return p // a type that holds itself
	}
	p := &plan{}
	made[desc.FullName()] = p
	fields := desc.Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if fd.Number() >= maxPlanned {
			continue
		}
		for len(p.fields) <= int(fd.Number()) {
			p.fields = append(p.fields, planField{})
		}
		f := planField{known: true, typ: wireType(fd.Kind()), name: fd.Name()}
		if fd.Cardinality() == protoreflect.Repeated {
			p.lists++
			f.list, f.most = p.lists, maxBatchItems
			if fd.IsMap() {
				f.most = maxAttributes
			}
			f.packed = f.typ == protowire.VarintType || f.typ == protowire.Fixed32Type || f.typ == protowire.Fixed64Type
		}
		if fd.Kind() == protoreflect.MessageKind && !fd.IsMap() {
			f.inner = newPlan(fd.Message(), made)
		}
		p.fields[fd.Number()] = f
	}
	if p.lists > maxLists {
		panic(fmt.Sprintf("server: %s has %d lists; raise maxLists", desc.FullName(), p.lists))
	}
	return p
}

// wireType is how a field of a kind is written.
func wireType(k protoreflect.Kind) protowire.Type {
	switch k {
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return protowire.Fixed32Type
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return protowire.Fixed64Type
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType
	case protoreflect.GroupKind:
		return protowire.StartGroupType
	case protoreflect.BoolKind, protoreflect.EnumKind, protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Uint32Kind,
		protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Uint64Kind:
	}
	return protowire.VarintType
}

// scan is one pass over a request.
type scan struct {
	total int
	field string // the list that is too long
	most  int
	// strange: there may be an unknown field, or it is no valid message.
	strange bool
}

// err is the error of a request whose lists are too long, nil where none is. What is no valid
// message the scan leaves to the decoder.
func (s *scan) err() error {
	c := &check{}
	switch {
	case s.field != "":
		c.wrong(s.field, "has more than %d items; at most %d are allowed", s.most, s.most)
	case s.total > maxElements:
		c.wrong("(request)", "has more than %d items in all; send several smaller calls", maxElements)
	}
	return c.err()
}

// message scans one message. It returns false where there is no need to go on.
func (s *scan) message(data []byte, p *plan) bool {
	var seen [maxLists + 1]int
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			s.strange = true
			return false
		}
		data = data[n:]
		n = protowire.ConsumeFieldValue(num, typ, data)
		if n < 0 {
			s.strange = true
			return false
		}
		value := data[:n]
		data = data[n:]
		if int(num) >= len(p.fields) || !p.fields[num].known {
			s.strange = true
			continue
		}
		f := &p.fields[num]
		if typ != f.typ && (!f.packed || typ != protowire.BytesType) {
			s.strange = true // the decoder takes it for an unknown field
		}
		if f.list > 0 {
			more := f.entries(typ, value)
			seen[f.list] += more
			s.total += more
			if seen[f.list] > f.most {
				s.field, s.most = string(f.name), f.most
				return false
			}
			if s.total > maxElements {
				return false
			}
		}
		if f.inner == nil || typ != protowire.BytesType {
			continue
		}
		inner, n := protowire.ConsumeBytes(value)
		if n < 0 {
			s.strange = true
			return false
		}
		if !s.message(inner, f.inner) {
			if s.field != "" {
				s.field = f.path(seen[f.list]) + "." + s.field
			}
			return false
		}
	}
	return true
}

// path names a field, with the place in its list where it is one.
func (f *planField) path(count int) string {
	if f.list == 0 {
		return string(f.name)
	}
	return fmt.Sprintf("%s[%d]", f.name, count-1)
}

// entries counts what one field value adds to a list: numbers may come packed.
func (f *planField) entries(typ protowire.Type, value []byte) int {
	if !f.packed || typ != protowire.BytesType {
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
