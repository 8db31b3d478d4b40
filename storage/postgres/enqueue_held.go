package postgres

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

const (
	setNames = `SELECT set_config('queuebox.names', $1, true)`
	getHeld  = `SELECT current_setting('queuebox.held')`
	// findWait is how long findHeld waits for a key: the least that lock_timeout knows.
	findWait = time.Millisecond
)

// findHeld answers the messages of which another session holds a key (storage.EnqueueHeld); some
// is false where there is none, or where it could not find out: the enqueue itself finds out then.
func (s *Store) findHeld(ctx context.Context, messages []storage.NewMessage) (out storage.EnqueueResult, some bool) {
	type name struct {
		Ord      int    `json:"ord"`
		QueueID  int32  `json:"queue_id"`
		Name     string `json:"name"`
		Ordering bool   `json:"ordering"`
	}
	var names []name
	at := map[name]int{}
	users := [][]int{} // by the place of a name, the messages that need it
	add := func(i int, n name) {
		k, known := at[n]
		if !known {
			k = len(names)
			at[n] = k
			n.Ord = k
			names, users = append(names, n), append(users, nil)
		}
		users[k] = append(users[k], i)
	}
	for i := range messages {
		m := &messages[i]
		if m.IdempotencyKey != "" {
			add(i, name{QueueID: m.QueueID, Name: m.IdempotencyKey})
		}
		if m.OrderingKey != "" {
			add(i, name{QueueID: m.QueueID, Name: m.OrderingKey, Ordering: true})
		}
	}
	if len(names) == 0 {
		return out, false
	}
	raw, err := json.Marshal(names)
	if err != nil {
		return out, false
	}
	var held string
	steps := append(atMost(findWait),
		step{sql: setNames, args: []any{string(raw)}},
		step{sql: s.sql.findHeld},
		step{sql: getHeld, scan: one(func(r pgx.Rows) error { return r.Scan(&held) })},
		step{sql: s.sql.now, scan: one(func(r pgx.Rows) error { return r.Scan(&out.Now) })})
	// It is rolled back: what it took it has given back by itself.
	err = s.transact(ctx, "enqueue: find held keys", steps, func() ([]step, bool) { return nil, false })
	if err != nil {
		return out, false
	}
	out.Now = out.Now.UTC()
	out.Items = make([]storage.Enqueued, len(messages))
	for ord := range strings.SplitSeq(held, ",") {
		k, err := strconv.Atoi(ord)
		if err != nil || k < 0 || k >= len(users) {
			continue // what stands behind the last comma
		}
		for _, i := range users[k] {
			out.Items[i].Status, some = storage.EnqueueHeld, true
		}
	}
	return out, some
}
