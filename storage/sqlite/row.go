package sqlite

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// row is one row of a result. Its bytes are copies that belong to whoever scans them.
type row struct{ values []driver.Value }

// Scan puts the columns into the variables that dest points to.
func (r *row) Scan(dest ...any) error {
	if len(dest) != len(r.values) {
		return fmt.Errorf("%d columns for %d variables", len(r.values), len(dest))
	}
	for i, d := range dest {
		if err := fromValue(d, r.values[i]); err != nil {
			return fmt.Errorf("column %d: %w", i+1, err)
		}
	}
	return nil
}

func fromValue(dest any, v driver.Value) error {
	switch d := dest.(type) {
	case *int64:
		if n, ok := v.(int64); ok {
			*d = n
			return nil
		}
	case *int32:
		if n, ok := v.(int64); ok && n == int64(int32(n)) {
			*d = int32(n)
			return nil
		}
	case *string:
		if s, ok := v.(string); ok {
			*d = s
			return nil
		}
	case *[]byte:
		switch b := v.(type) {
		case []byte:
			*d = b
			return nil
		case nil:
			*d = nil
			return nil
		}
	case *bool:
		if n, ok := v.(int64); ok {
			*d = n != 0
			return nil
		}
	case *float64:
		switch f := v.(type) {
		case float64:
			*d = f
			return nil
		case int64:
			*d = float64(f)
			return nil
		}
	case *sql.NullInt64:
		n, ok := v.(int64)
		if ok || v == nil {
			*d = sql.NullInt64{Int64: n, Valid: ok}
			return nil
		}
	case *sql.NullString:
		s, ok := v.(string)
		if ok || v == nil {
			*d = sql.NullString{String: s, Valid: ok}
			return nil
		}
	case sql.Scanner:
		return d.Scan(v)
	default:
		return fromInteger(dest, v)
	}
	return fmt.Errorf("%T for a %T", v, dest)
}

// fromInteger is for the smaller integers and those with names of their own.
func fromInteger(dest any, v driver.Value) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("%T for a %T", v, dest)
	}
	d := reflect.ValueOf(dest)
	if d.Kind() != reflect.Pointer {
		return fmt.Errorf("%T is no pointer", dest)
	}
	switch d = d.Elem(); {
	case d.CanInt() && !d.OverflowInt(n):
		d.SetInt(n)
	case d.CanUint() && n >= 0 && !d.OverflowUint(uint64(n)):
		d.SetUint(uint64(n))
	default:
		return fmt.Errorf("%d for a %T", n, dest)
	}
	return nil
}

// toValue is an argument as the driver takes it.
func toValue(a any) (driver.Value, error) {
	switch v := a.(type) {
	case nil, int64, string, []byte, bool, float64:
		return v, nil
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	default:
		return driver.DefaultParameterConverter.ConvertValue(a)
	}
}

// nameless gives a statement whose parameters ?1, ?2 have lost their numbers, and which argument
// each of them is, from 0 on. The driver asks SQLite for the name of each parameter at each run,
// and ?1 is one, which costs more than to bind a value once more where it stands twice.
func nameless(text string) (string, []int) {
	var b strings.Builder
	var order []int
	for text != "" {
		i := strings.IndexAny(text, "?'-/")
		if i < 0 {
			break
		}
		b.WriteString(text[:i])
		text = text[i:]
		n := 1
		switch {
		case text[0] == '?':
			for n < len(text) && '0' <= text[n] && text[n] <= '9' {
				n++
			}
			number, err := strconv.Atoi(text[1:n])
			if err != nil {
				number = len(order) + 1
			}
			order = append(order, number-1)
			b.WriteByte('?')
			text = text[n:]
			continue
		case text[0] == '\'':
			n = through(text, 1, "'")
		case strings.HasPrefix(text, "--"):
			n = through(text, 2, "\n")
		case strings.HasPrefix(text, "/*"):
			n = through(text, 2, "*/")
		}
		b.WriteString(text[:n])
		text = text[n:]
	}
	b.WriteString(text)
	return b.String(), order
}

// through is how far text goes to the end of the next mark.
func through(text string, from int, mark string) int {
	if i := strings.Index(text[from:], mark); i >= 0 {
		return from + i + len(mark)
	}
	return len(text)
}
