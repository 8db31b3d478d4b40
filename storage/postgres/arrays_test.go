package postgres

import (
	"bytes"
	"math"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"
)

// The database gets what pgx would have sent, but for the flag that tells of nulls, which it does
// not look at.
func TestArraysAreThoseOfPgx(t *testing.T) {
	usual, quick := pgtype.NewMap(), pgtype.NewMap()
	for _, m := range []*pgtype.Map{usual, quick} {
		m.RegisterDefaultPgType([][16]byte(nil), "_uuid")
	}
	quickArrays(quick)
	for name, c := range map[string]struct {
		oid   uint32
		value any
		fast  bool
	}{
		"int4":           {pgtype.Int4ArrayOID, []int32{1, -1, math.MinInt32, math.MaxInt32}, true},
		"int8":           {pgtype.Int8ArrayOID, []int64{0, -1, math.MinInt64, math.MaxInt64}, true},
		"uuid":           {pgtype.UUIDArrayOID, [][16]byte{{1, 2, 3}, {}}, true},
		"bytea":          {pgtype.ByteaArrayOID, [][]byte{{}, bytes.Repeat([]byte{7}, 5000), {1}}, true},
		"empty":          {pgtype.Int4ArrayOID, []int32{}, true},
		"null":           {pgtype.ByteaArrayOID, [][]byte(nil), true},
		"other values":   {pgtype.Int4ArrayOID, []int16{1, 2}, false},
		"nulls in int8":  {pgtype.Int8ArrayOID, []*int64{nil, new(int64)}, false},
		"nulls in uuid":  {pgtype.UUIDArrayOID, []*[16]byte{nil, {1}}, false},
		"text, as usual": {pgtype.TextArrayOID, []string{"a", ""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := []byte("what came before")
			want, err := usual.Encode(c.oid, pgtype.BinaryFormatCode, c.value, bytes.Clone(before))
			require.NoError(t, err)
			got, err := quick.Encode(c.oid, pgtype.BinaryFormatCode, c.value, bytes.Clone(before))
			require.NoError(t, err)
			require.Equal(t, want, got)
			want, err = usual.Encode(c.oid, pgtype.TextFormatCode, c.value, nil)
			require.NoError(t, err)
			got, err = quick.Encode(c.oid, pgtype.TextFormatCode, c.value, nil)
			require.NoError(t, err)
			require.Equal(t, want, got, "in text, as behind a pooler")
			plan := quick.PlanEncode(c.oid, pgtype.BinaryFormatCode, c.value)
			switch plan.(type) {
			case arrayOf[int32], arrayOf[int64], arrayOf[[16]byte], arrayOf[[]byte]:
				require.True(t, c.fast)
			default:
				require.False(t, c.fast)
			}
		})
	}
}

func TestNullsInBytesArrays(t *testing.T) {
	m := pgtype.NewMap()
	quickArrays(m)
	raw, err := m.Encode(pgtype.ByteaArrayOID, pgtype.BinaryFormatCode, [][]byte{nil, {}, {1}}, nil)
	require.NoError(t, err)
	var back [][]byte
	require.NoError(t, pgtype.NewMap().Scan(pgtype.ByteaArrayOID, pgtype.BinaryFormatCode, raw, &back))
	require.Equal(t, [][]byte{nil, {}, {1}}, back)
}

func BenchmarkArrays(b *testing.B) {
	tokens, payloads := newTokens(1000), make([][]byte, 1000)
	for i := range payloads {
		payloads[i] = make([]byte, 100)
	}
	m := pgtype.NewMap()
	quickArrays(m)
	for b.Loop() {
		buf, err := m.Encode(pgtype.UUIDArrayOID, pgtype.BinaryFormatCode, tokens, make([]byte, 0, 256))
		if err == nil {
			_, err = m.Encode(pgtype.ByteaArrayOID, pgtype.BinaryFormatCode, payloads, buf)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
