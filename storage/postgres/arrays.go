package postgres

import (
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgtype"
)

// arrayOf is the codec of an array type that writes the slices of the hot statements as they go
// over the wire. pgx asks each element for its type and boxes most of them, which was a third of
// what a batch cost on the way into the database. Every other value, and the text form, goes the
// way of pgx.
type arrayOf[T any] struct {
	*pgtype.ArrayCodec

	// size is what an element takes beside its length, put appends both.
	size func(v T) int
	put  func(buf []byte, v T) []byte
}

// PlanEncode implements pgtype.Codec.
func (a arrayOf[T]) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.([]T); ok && format == pgtype.BinaryFormatCode {
		return a
	}
	return a.ArrayCodec.PlanEncode(m, oid, format, value)
}

const (
	arrayHead = 20 // dimensions, flags, type, length, lower bound
	nullSize  = ^uint32(0)
)

// Encode implements pgtype.EncodePlan. A nil slice is a null.
func (a arrayOf[T]) Encode(value any, buf []byte) ([]byte, error) {
	values := value.([]T) //nolint:forcetypeassert // PlanEncode has looked
	if values == nil {
		return nil, nil
	}
	need := arrayHead
	for _, v := range values {
		need += 4 + a.size(v)
	}
	if cap(buf)-len(buf) < need {
		buf = append(make([]byte, 0, len(buf)+need+arrayRoom), buf...)
	}
	buf = binary.BigEndian.AppendUint32(buf, 1)
	// That there may be nulls need not be told: the database looks at the lengths.
	buf = binary.BigEndian.AppendUint32(buf, 0)
	buf = binary.BigEndian.AppendUint32(buf, a.ElementType.OID)
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(values)))
	buf = binary.BigEndian.AppendUint32(buf, 1)
	for _, v := range values {
		buf = a.put(buf, v)
	}
	return buf, nil
}

// arrayRoom is left behind an array for the parameters that follow, which share the buffer.
const arrayRoom = 512

// fixed makes the size of elements that all have the same.
func fixed[T any](n int) func(T) int { return func(T) int { return n } }

// quickArrays puts the codecs in the place of those of pgx.
func quickArrays(m *pgtype.Map) {
	quickArray(m, pgtype.Int4ArrayOID, fixed[int32](4), func(buf []byte, v int32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(buf, 4), uint32(v))
	})
	quickArray(m, pgtype.Int8ArrayOID, fixed[int64](8), func(buf []byte, v int64) []byte {
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(buf, 8), uint64(v))
	})
	quickArray(m, pgtype.UUIDArrayOID, fixed[[16]byte](16), func(buf []byte, v [16]byte) []byte {
		return append(binary.BigEndian.AppendUint32(buf, 16), v[:]...)
	})
	quickArray(m, pgtype.ByteaArrayOID, func(v []byte) int { return len(v) }, func(buf []byte, v []byte) []byte {
		if v == nil {
			return binary.BigEndian.AppendUint32(buf, nullSize)
		}
		return append(binary.BigEndian.AppendUint32(buf, uint32(len(v))), v...)
	})
}

func quickArray[T any](m *pgtype.Map, oid uint32, size func(T) int, put func([]byte, T) []byte) {
	t, ok := m.TypeForOID(oid)
	if !ok {
		return
	}
	if usual, ok := t.Codec.(*pgtype.ArrayCodec); ok {
		m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: arrayOf[T]{usual, size, put}})
	}
}
