package mysql

import (
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"
)

// values makes the values that the driver takes. It writes them into the text of the
// statement, so that a statement is one round trip and nothing is prepared. Each null has a
// type, as SQL Server wants it.
type values struct{}

// latest is the end of time: DATETIME knows nothing after it.
var latest = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)

// earliest is where DATETIME begins.
var earliest = time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC)

// Time implements rowlock.Values. What is finer than the column is cut off, since the
// database would round it, perhaps up.
func (values) Time(t time.Time) any {
	switch {
	case t.IsZero():
		return sql.NullTime{}
	case t.After(latest):
		return latest
	case t.Before(earliest):
		return earliest
	}
	return t.UTC().Truncate(time.Microsecond)
}

// Token implements rowlock.Values.
func (values) Token(t [16]byte) any {
	if t == ([16]byte{}) {
		return []byte(nil)
	}
	return t[:]
}

// Bytes implements rowlock.Values.
func (values) Bytes(b []byte) any { return b }

// Text implements rowlock.Values.
func (values) Text(s string) any {
	if s == "" {
		return sql.NullString{}
	}
	return s
}

// Name implements rowlock.Values.
func (v values) Name(s string) any { return v.Text(s) }

// NameText implements rowlock.Values.
func (values) NameText(s string) string { return s }

// List implements rowlock.Values. It is text, since the database reads no JSON from bytes.
func (values) List(json []byte) any {
	if json == nil {
		return sql.NullString{}
	}
	return string(json)
}

// TokenText implements rowlock.Values: UNHEX reads it.
func (values) TokenText(t [16]byte) string { return hex.EncodeToString(t[:]) }

// ScanToken implements rowlock.Values.
func (values) ScanToken(into *[16]byte) sql.Scanner { return &tokenScanner{into} }

type tokenScanner struct{ into *[16]byte }

// Scan implements sql.Scanner.
func (s *tokenScanner) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*s.into = [16]byte{}
		return nil
	case []byte:
		if len(v) == len(s.into) {
			copy(s.into[:], v)
			return nil
		}
	}
	return fmt.Errorf("not a token: %T", v)
}
