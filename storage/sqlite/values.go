package sqlite

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// toMillis rounds a duration up, so that nothing becomes ready or over a moment early.
func toMillis(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// toInstant rounds a time up to milliseconds; nil where it is not set.
func toInstant(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms
}

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func fromNullMillis(ms sql.NullInt64) time.Time {
	if !ms.Valid {
		return time.Time{}
	}
	return fromMillis(ms.Int64)
}

func fromDuration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// toAttributes keeps the difference between no map and an empty one.
func toAttributes(m map[string]string) (any, error) {
	if m == nil {
		return nil, nil
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("attributes: %w", err)
	}
	return string(text), nil
}

func fromAttributes(text sql.NullString) (map[string]string, error) {
	if !text.Valid {
		return nil, nil
	}
	m := map[string]string{}
	if err := json.Unmarshal([]byte(text.String), &m); err != nil {
		return nil, fmt.Errorf("attributes: %w", err)
	}
	return m, nil
}

// blob binds an empty blob where the value is nil, which the driver would bind as NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// nullBlob binds NULL for nothing.
func nullBlob(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

// toJSON binds a list for json_each.
func toJSON(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("list: %w", err)
	}
	return string(text), nil
}

// shownState is the state that everybody sees: a marked message (E12) shows its outcome.
func shownState(state storage.State, outcome storage.Outcome) storage.State {
	if state != storage.StateSettling {
		return state
	}
	switch outcome {
	case storage.OutcomeCompleted:
		return storage.StateCompleted
	case storage.OutcomeDead:
		return storage.StateDead
	case storage.OutcomeCancelled:
		return storage.StateCancelled
	default:
		return storage.StatePending
	}
}

// readable is a text that a worker gave in a transaction of his own (E12), where SQLite takes any
// bytes: the wire carries valid UTF-8 alone, and S9 removes NUL. It never grows.
func readable(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "")
	}
	return strings.ToValidUTF8(s, "?")
}
