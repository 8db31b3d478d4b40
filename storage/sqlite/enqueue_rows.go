package sqlite

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// enqueueRow is a message as enqueue_insert writes it, without a key of any kind.
type enqueueRow struct {
	shared enqueueShared
	// position, wireBytes, attributes and payload are what every row has of its own.
	position   int64
	wireBytes  int64
	attributes any
	payload    []byte
}

// enqueueShared is what the messages of a batch most often have in common.
type enqueueShared struct {
	queueID     int32
	place       int
	priority    int32
	ready       int64
	maxAttempts int32
	created     int64
	expire      any // an int64, or nil
	contentType string
}

// rowsTogether are the numbers of rows that one statement inserts.
var rowsTogether = []int{32, 8, 1}

// pend keeps a row for a statement of many.
func (b *enqueueBatch) pend(ctx context.Context, r enqueueRow) error {
	if n := len(b.pending); n > 0 && (b.pending[0].shared != r.shared || b.pending[n-1].position+1 != r.position) {
		if err := b.flush(ctx, 1); err != nil {
			return err
		}
	}
	if b.pending = append(b.pending, r); len(b.pending) < rowsTogether[0] {
		return nil
	}
	return b.flush(ctx, rowsTogether[0])
}

// flush inserts what is pending, as long as it fills statements of atLeast so many rows.
func (b *enqueueBatch) flush(ctx context.Context, atLeast int) error {
	rows := b.pending
	for _, n := range rowsTogether {
		for n >= atLeast && len(rows) >= n {
			if err := b.c.insertRows(ctx, rows[:n]); err != nil {
				return err
			}
			rows = rows[n:]
		}
	}
	b.pending = append(b.pending[:0], rows...)
	return nil
}

// insertRows inserts rows at positions without a gap that have in common what may be. A value
// that is bound costs as much as one that is written, and a statement as much as a row, so the
// common ones are bound once.
func (c *session) insertRows(ctx context.Context, rows []enqueueRow) error {
	s := rows[0].shared
	args := append(make([]any, 0, sharedColumns+ownColumns*len(rows)),
		rows[0].position, s.queueID, s.place, s.priority, s.ready, s.maxAttempts, s.created, s.expire, s.contentType)
	for i := range rows {
		r := &rows[i]
		args = append(args, r.wireBytes, r.attributes, len(r.payload), blob(r.payload))
	}
	name := query("enqueue_rows_" + strconv.Itoa(len(rows)))
	if _, ok := c.stmts[name]; !ok {
		order := make([]int, len(args))
		for i := range order {
			order[i] = i
		}
		if _, err := c.prepareAs(ctx, name, insertRowsText(len(rows)), order); err != nil {
			return err
		}
	}
	n, err := c.exec(ctx, name, args...)
	if err == nil && n != int64(len(rows)) {
		err = fmt.Errorf("%d of %d messages were inserted", n, len(rows))
	}
	return err
}

// The columns that insertRows binds once, and those that it binds for each row.
const (
	sharedColumns = 9
	ownColumns    = 4
)

// insertRowsText is enqueue_insert for n messages without keys at positions without a gap.
func insertRowsText(n int) string {
	var b strings.Builder
	b.WriteString(`INSERT INTO message (position, queue_id, place, priority, ready_time, max_attempts, create_time, expire_time,
	content_type, idempotency_key, wire_bytes, attributes, payload_bytes, payload) VALUES`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n(?1 + %d, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, '', ?, ?, ?, ?)", i)
	}
	return b.String()
}
