package mssql

import (
	"database/sql"
	"testing"
	"time"

	"github.com/golang-sql/civil"
	mssqldb "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage/rowlock"
)

func TestCompile(t *testing.T) {
	query, bind, err := compile("DECLARE @own int = 1;\nSELECT @b, '@quoted', [@bracketed], @a, @b, @own, @@ROWCOUNT")
	require.NoError(t, err)
	require.Equal(t, procedure, query)
	args := bind([]rowlock.Arg{{Name: "a", Value: int64(1)}, {Name: "unused", Value: 1}, {Name: "b", Value: values{}.Text("x")}})
	require.Equal(t, []any{
		settings + "DECLARE @own int = 1;\nSELECT @b, '@quoted', [@bracketed], @a, @b, @own, @@ROWCOUNT",
		"@b nvarchar(2000), @a bigint",
		sql.Named("b", "x"), sql.Named("a", int64(1)),
	}, args)
	_, bind, err = compile("SELECT 1")
	require.NoError(t, err)
	require.Equal(t, []any{settings + "SELECT 1"}, bind(nil))
}

func TestCompile_RefusesWhatHasNoType(t *testing.T) {
	_, bind, err := compile("SELECT @a")
	require.NoError(t, err)
	for want, args := range map[string][]rowlock.Arg{
		"@a has no argument":         {{Name: "b", Value: 1}},
		"@a: a bare nil has no type": {{Name: "a"}},
		"@a: a []int has no":         {{Name: "a", Value: []int{1}}},
	} {
		bound := bind(args)
		require.Len(t, bound, 1)
		v, ok := bound[0].(refused)
		require.True(t, ok)
		_, err := v.Value()
		require.ErrorContains(t, err, want)
	}
}

// The declaration of a parameter depends on what it is for and never on its value, so that a
// statement has one plan.
func TestValues_OneTypeEach(t *testing.T) {
	v := values{}
	at := time.Date(2031, 2, 3, 4, 5, 6, 789123999, time.FixedZone("", 3600))
	token := [16]byte{0: 1, 15: 16}
	for _, c := range []struct {
		declared string
		values   []any
		want     []any
	}{
		{"datetime2(6)", []any{v.Time(at), v.Time(time.Time{}), v.Time(time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)), v.Time(time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC))}, []any{
			civil.DateTimeOf(time.Date(2031, 2, 3, 3, 5, 6, 789123000, time.UTC)),
			mssqldb.NullDateTime{},
			civil.DateTimeOf(latest), civil.DateTimeOf(earliest),
		}},
		{"uniqueidentifier", []any{v.Token(token), v.Token([16]byte{})}, []any{mssqldb.UniqueIdentifier(token), sql.NullString{}}},
		{"varbinary(max)", []any{v.Bytes([]byte("abc")), v.Bytes([]byte{}), v.Bytes(nil), []byte("x")}, []any{[]byte("abc"), []byte{}, []byte(nil), []byte("x")}},
		{"nvarchar(2000)", []any{v.Text("ä"), v.Text(""), "x", ""}, []any{"ä", sql.NullString{}, "x", ""}},
		{"varbinary(255)", []any{v.Name("ä "), v.Name("")}, []any{[]byte{0xc3, 0xa4, 0x20}, []byte(nil)}},
		{"nvarchar(max)", []any{v.List([]byte(`[[1]]`)), v.List(nil)}, []any{mssqldb.NVarCharMax(`[[1]]`), sql.NullString{}}},
		{"bigint", []any{int64(1), 1, sql.NullInt64{}, time.Duration(5)}, []any{int64(1), int64(1), sql.NullInt64{}, int64(5)}},
		{"int", []any{int32(1), sql.NullInt32{}}, []any{int32(1), sql.NullInt32{}}},
		{"smallint", []any{int16(-1), int8(-2)}, []any{int16(-1), int16(-2)}},
		{"tinyint", []any{uint8(1)}, []any{uint8(1)}},
		{"bit", []any{true}, []any{true}},
		{"float", []any{1.5}, []any{1.5}},
	} {
		t.Run(c.declared, func(t *testing.T) {
			for i, value := range c.values {
				got, err := declare(value)
				require.NoError(t, err)
				require.Equal(t, typed{c.declared, c.want[i]}, got)
			}
		})
	}
}

func TestValues_TokensAndNamesInLists(t *testing.T) {
	token := [16]byte{0x0, 0x1, 0x2, 0x3, 0x4, 0x5, 0x6, 0x7, 0x8, 0x9, 0xa, 0xb, 0xc, 0xd, 0xe, 0xf}
	require.Equal(t, "00010203-0405-0607-0809-0A0B0C0D0E0F", values{}.TokenText(token))
	require.Equal(t, "YSA=", values{}.NameText("a "))
	require.Empty(t, values{}.NameText(""))

	// As it stands on the wire: the first three groups turned.
	wire := []byte{0x3, 0x2, 0x1, 0x0, 0x5, 0x4, 0x7, 0x6, 0x8, 0x9, 0xa, 0xb, 0xc, 0xd, 0xe, 0xf}
	var got [16]byte
	require.NoError(t, values{}.ScanToken(&got).Scan(wire))
	require.Equal(t, token, got)
	require.NoError(t, values{}.ScanToken(&got).Scan(nil))
	require.Zero(t, got)
	require.Error(t, values{}.ScanToken(&got).Scan("00010203"))
	require.Error(t, values{}.ScanToken(&got).Scan(wire[:15]))
}
