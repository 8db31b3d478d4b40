package mssql

import (
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/golang-sql/civil"
	mssqldb "github.com/microsoft/go-mssqldb"

	"github.com/queuebox/queuebox/storage/rowlock"
)

// typed is a value with the type that its parameter is declared with, whatever its length.
type typed struct {
	declared string
	value    any
}

// values implements rowlock.Values.
type values struct{}

var _ rowlock.Values = values{}

// The ends of what datetime2 and the zero of Go leave. The zero time is NULL.
var (
	earliest = time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC)
	latest   = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)
)

// Time implements rowlock.Values. It is a datetime2, never a datetimeoffset, which would have
// the column converted to its type. What is finer than the column is cut off, since the
// database would round it, perhaps up.
func (values) Time(t time.Time) any {
	out := typed{declared: "datetime2(6)", value: mssqldb.NullDateTime{}}
	if !t.IsZero() {
		out.value = civil.DateTimeOf(storable(t))
	}
	return out
}

func storable(t time.Time) time.Time {
	t = t.UTC().Truncate(time.Microsecond)
	switch {
	case t.Before(earliest):
		return earliest
	case t.After(latest):
		return latest
	}
	return t
}

// Token implements rowlock.Values. On the wire the first three groups of a uniqueidentifier
// are little-endian: mssqldb.UniqueIdentifier turns them, and nothing else here does. (A NULL
// is sent as a text, since v1.11.2 of the driver writes a NULL of its NullUniqueIdentifier
// with 16 bytes too many.)
func (values) Token(t [16]byte) any {
	out := typed{declared: "uniqueidentifier", value: sql.NullString{}}
	if t != ([16]byte{}) {
		out.value = mssqldb.UniqueIdentifier(t)
	}
	return out
}

// Bytes implements rowlock.Values.
func (values) Bytes(b []byte) any { return typed{declared: "varbinary(max)", value: b} }

// Text implements rowlock.Values.
func (values) Text(s string) any {
	out := typed{declared: "nvarchar(2000)", value: sql.NullString{}}
	if s != "" {
		out.value = s
	}
	return out
}

// Name implements rowlock.Values: a name is the bytes of its UTF-8; see the package comment.
func (values) Name(s string) any {
	out := typed{declared: "varbinary(255)", value: []byte(nil)}
	if s != "" {
		out.value = []byte(s)
	}
	return out
}

// List implements rowlock.Values.
func (values) List(json []byte) any {
	out := typed{declared: "nvarchar(max)", value: sql.NullString{}}
	if json != nil {
		out.value = mssqldb.NVarCharMax(json)
	}
	return out
}

// TokenText implements rowlock.Values: OPENJSON reads it as a uniqueidentifier.
func (values) TokenText(t [16]byte) string { return mssqldb.UniqueIdentifier(t).String() }

// NameText implements rowlock.Values: OPENJSON decodes base64 for a varbinary.
func (values) NameText(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// ScanToken implements rowlock.Values.
func (values) ScanToken(into *[16]byte) sql.Scanner { return (*tokenScanner)(into) }

type tokenScanner [16]byte

// Scan implements sql.Scanner.
func (s *tokenScanner) Scan(v any) error {
	if v == nil {
		*s = tokenScanner{}
		return nil
	}
	raw, ok := v.([]byte)
	if !ok {
		return fmt.Errorf("not a token: %T", v)
	}
	return (*mssqldb.UniqueIdentifier)(s).Scan(raw)
}

// declare gives a plain value the type that its Go type stands for.
func declare(v any) (typed, error) {
	switch v := v.(type) {
	case typed:
		return v, nil
	case sql.NullInt64:
		return typed{"bigint", v}, nil
	case sql.NullInt32:
		return typed{"int", v}, nil
	case []byte:
		return typed{"varbinary(max)", v}, nil
	case nil:
		return typed{}, errors.New("a bare nil has no type")
	}
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Bool:
		return typed{"bit", r.Bool()}, nil
	case reflect.Int, reflect.Int64:
		return typed{"bigint", r.Int()}, nil
	case reflect.Int32:
		return typed{"int", int32(r.Int())}, nil
	case reflect.Int16:
		return typed{"smallint", int16(r.Int())}, nil
	case reflect.Int8:
		// tinyint knows no sign.
		return typed{"smallint", int16(r.Int())}, nil
	case reflect.Uint8:
		return typed{"tinyint", uint8(r.Uint())}, nil
	case reflect.String:
		return typed{"nvarchar(2000)", r.String()}, nil
	case reflect.Float64:
		return typed{"float", r.Float()}, nil
	default:
		return typed{}, fmt.Errorf("a %T has no declared type", v)
	}
}
