package mssql

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/queuebox/queuebox/storage/rowlock"
)

// insert implements rowlock.Engine.Insert: the rows are one list, and the payloads lie one
// behind the other in a parameter of their own.
func insert(ctx context.Context, q rowlock.Querier, st rowlock.Statement, rows []rowlock.MessageRow) (ids []int64, err error) {
	v := values{}
	list := make([][]any, len(rows))
	payloads := []byte{}
	for i := range rows {
		m := &rows[i]
		list[i] = []any{
			i, m.QueueID, m.Place, -int64(m.Priority), timeText(m.ReadyTime), timeText(m.CreateTime), timeText(m.ExpireTime),
			orNull(m.KeyID, m.KeyID != 0), m.MaxAttempts, len(payloads) + 1, len(m.Payload), m.WireBytes,
			m.ContentType, v.NameText(m.IdempotencyKey), orNull(string(m.Attributes), m.Attributes != nil),
		}
		payloads = append(payloads, m.Payload...)
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	found, err := q.QueryContext(ctx, st.Text, st.Bind([]rowlock.Arg{
		{Name: "list", Value: v.List(text)}, {Name: "payloads", Value: v.Bytes(payloads)},
	})...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	for found.Next() {
		var id int64
		if err := found.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, found.Err()
}

// timeText is a time as OPENJSON reads a datetime2.
func timeText(t time.Time) any {
	return orNull(storable(t).Format("2006-01-02T15:04:05.000000"), !t.IsZero())
}

func orNull(v any, there bool) any {
	if !there {
		return nil
	}
	return v
}
