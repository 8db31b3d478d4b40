package postgres

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// row reads the values of one row as they came over the wire, for the statements that give
// very many: to be scanned into pointers costs several allocations a column. What did not come in
// binary form, as behind a pooler, goes the usual way. The first error stays.
type row struct {
	values [][]byte
	fields []pgconn.FieldDescription
	types  *pgtype.Map
	err    error
}

func raw(r pgx.Rows) row {
	return row{values: r.RawValues(), fields: r.FieldDescriptions(), types: r.Conn().TypeMap()}
}

func (r *row) null(i int) bool { return r.values[i] == nil }

// usual scans a value as pgx does.
func (r *row) usual(i int, into any) {
	f := &r.fields[i]
	if err := r.types.Scan(f.DataTypeOID, f.Format, r.values[i], into); err != nil && r.err == nil {
		r.err = err
	}
}

func (r *row) binary(i int) bool { return r.fields[i].Format == pgx.BinaryFormatCode }

// int reads an integer of any size; null is 0.
func (r *row) int(i int) int64 {
	v := r.values[i]
	if v == nil {
		return 0
	}
	if r.binary(i) {
		switch len(v) {
		case 8:
			return int64(binary.BigEndian.Uint64(v))
		case 4:
			return int64(int32(binary.BigEndian.Uint32(v)))
		case 2:
			return int64(int16(binary.BigEndian.Uint16(v)))
		}
	}
	var n int64
	r.usual(i, &n)
	return n
}

func (r *row) int32(i int) int32 { return int32(r.int(i)) }

// bool reads a boolean; null is false.
func (r *row) bool(i int) bool {
	v := r.values[i]
	if v == nil {
		return false
	}
	if r.binary(i) && len(v) == 1 {
		return v[0] != 0
	}
	var b bool
	r.usual(i, &b)
	return b
}

// epoch is where PostgreSQL counts its microseconds from.
const epoch = 946684800

// time reads a time with a zone, in UTC; null is the zero time.
func (r *row) time(i int) time.Time {
	v := r.values[i]
	if v == nil {
		return time.Time{}
	}
	if r.binary(i) && len(v) == 8 {
		us := int64(binary.BigEndian.Uint64(v))
		if us > math.MinInt64 && us < math.MaxInt64 {
			s, rest := us/1_000_000, us%1_000_000
			return time.Unix(epoch+s, rest*1000).UTC()
		}
	}
	var t time.Time
	r.usual(i, &t)
	return t.UTC()
}

// text reads a text; null is the empty one.
func (r *row) text(i int) string {
	v := r.values[i]
	if v == nil {
		return ""
	}
	switch r.fields[i].DataTypeOID {
	case pgtype.TextOID, pgtype.VarcharOID:
		return string(v) // the same in both forms
	}
	var s string
	r.usual(i, &s)
	return s
}

// textLike is text, where it is likely the same as one that was read before.
func (r *row) textLike(i int, before string) string {
	if v := r.values[i]; v != nil && string(v) == before {
		return before
	}
	return r.text(i)
}

// attributes reads a JSON object of texts; null is nil.
func (r *row) attributes(i int) (map[string]string, error) {
	if r.values[i] == nil {
		return nil, nil //nolint:nilnil // No attributes are a nil map.
	}
	var raw *string
	r.usual(i, &raw)
	return attributesOf(raw)
}

// bytes reads bytes, as a copy; null is nil.
func (r *row) bytes(i int) []byte {
	v := r.values[i]
	if v == nil {
		return nil
	}
	if r.binary(i) {
		return append(make([]byte, 0, len(v)), v...)
	}
	var b []byte
	r.usual(i, &b)
	return b
}
