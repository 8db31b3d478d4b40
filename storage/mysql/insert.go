package mysql

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/queuebox/queuebox/storage/rowlock"
)

// insert puts several messages there in one statement, whose last part, a list of values, is
// repeated for each. The server counts the ids of such a statement one after the other,
// whatever innodb_autoinc_lock_mode says, since it knows the number of rows before; it tells
// the first.
func insert(ctx context.Context, q rowlock.Querier, st rowlock.Statement, rows []rowlock.MessageRow) ([]int64, error) {
	const before = "VALUES"
	at := strings.LastIndex(st.Text, before)
	if at < 0 {
		return nil, errors.New("the statement has no list of values")
	}
	at += len(before)
	list := st.Text[at:]
	var (
		b    strings.Builder
		args []any
	)
	b.WriteString(st.Text[:at])
	for i := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(list)
		args = append(args, st.Bind(rowArgs(&rows[i]))...)
	}
	res, err := q.ExecContext(ctx, b.String(), args...)
	if err != nil {
		return nil, err
	}
	first, err := res.LastInsertId()
	if err != nil {
		return nil, err
	}
	ids := make([]int64, len(rows))
	for i := range ids {
		ids[i] = first + int64(i)
	}
	return ids, nil
}

func rowArgs(m *rowlock.MessageRow) []rowlock.Arg {
	v := values{}
	a := func(name string, value any) rowlock.Arg { return rowlock.Arg{Name: name, Value: value} }
	payload := m.Payload
	if payload == nil {
		payload = []byte{}
	}
	return []rowlock.Arg{
		a("queue_id", m.QueueID), a("place", m.Place), a("urgency", -int64(m.Priority)),
		a("ready_time", v.Time(m.ReadyTime)), a("create_time", v.Time(m.CreateTime)), a("expire_time", v.Time(m.ExpireTime)),
		a("key_id", sql.NullInt64{Int64: m.KeyID, Valid: m.KeyID != 0}), a("max_attempts", m.MaxAttempts),
		a("payload_bytes", len(m.Payload)), a("wire_bytes", m.WireBytes), a("content_type", m.ContentType),
		a("idempotency_key", m.IdempotencyKey), a("attributes", v.List(m.Attributes)), a("payload", payload),
	}
}
