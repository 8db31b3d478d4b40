package rowlock

import (
	"context"
	"fmt"
	"time"
)

const qMessageInsert statement = "message_insert"

// The place of a live message.
const (
	placeReady   = 0
	placeDelayed = 1
	placeParked  = 2
)

// MessageRow is a message to insert, with everything decided but its id.
type MessageRow struct {
	QueueID     int32
	Place       int8
	Priority    int32
	ReadyTime   time.Time
	CreateTime  time.Time
	ExpireTime  time.Time // zero where there is none
	KeyID       int64     // 0 where there is none
	MaxAttempts int32
	WireBytes   int64
	ContentType string
	// IdempotencyKey is empty where there is none.
	IdempotencyKey string
	// Attributes are JSON; nil where there are none.
	Attributes []byte
	Payload    []byte
}

// Statement is a compiled statement as an engine's own code runs it.
type Statement struct {
	Text string
	Bind func([]Arg) []any
}

// One INSERT has at most so many rows, and is cut after so many bytes of them: a statement
// has to fit into what the database takes at once, and lets go of its latches soon.
const (
	maxInsertRows  = 500
	maxInsertBytes = 1 << 20
)

// insert puts messages there and gives their ids, which rise in the order of the rows.
func (c *session) insert(ctx context.Context, rows []MessageRow) ([]int64, error) {
	st, err := c.statement(qMessageInsert)
	if err != nil {
		return nil, err
	}
	ids := make([]int64, 0, len(rows))
	for len(rows) > 0 {
		n := insertable(rows)
		some, err := c.s.engine.Insert(ctx, c.q, Statement{Text: st.text, Bind: st.bind}, rows[:n:n])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", qMessageInsert, err)
		}
		if len(some) != n {
			return nil, fmt.Errorf("%s: %d ids for %d messages", qMessageInsert, len(some), n)
		}
		ids, rows = append(ids, some...), rows[n:]
	}
	return ids, nil
}

// insertable tells how many of the rows go into one statement: one at least.
func insertable(rows []MessageRow) int {
	bytes := 0
	for i := range rows {
		bytes += len(rows[i].Payload) + len(rows[i].Attributes)
		if i == maxInsertRows || i > 0 && bytes > maxInsertBytes {
			return i
		}
	}
	return len(rows)
}
