package drive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// tableShape is the SQL of pgmq, written by hand: one table, an index on the visibility time,
// read by FOR UPDATE SKIP LOCKED, and delete or archive by identifier. It has no fence: whoever
// knows an identifier deletes the message.
type tableShape struct {
	callers, batch int
	archive        bool

	spec   Spec
	pool   *pgxpool.Pool
	bodies *bodies
}

const (
	tableSchema = `
CREATE TABLE q (
  msg_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  read_ct integer NOT NULL DEFAULT 0,
  enqueued_at timestamptz NOT NULL DEFAULT now(),
  vt timestamptz NOT NULL,
  message jsonb
);
CREATE INDEX q_vt ON q (vt);
CREATE TABLE a (
  msg_id bigint PRIMARY KEY,
  read_ct integer NOT NULL DEFAULT 0,
  enqueued_at timestamptz NOT NULL DEFAULT now(),
  archived_at timestamptz NOT NULL DEFAULT now(),
  vt timestamptz NOT NULL,
  message jsonb
);
CREATE INDEX a_archived_at ON a (archived_at);`
	tableSend = `INSERT INTO q (vt, message) SELECT clock_timestamp(), m FROM unnest($1::jsonb[]) m RETURNING msg_id`
	tableRead = `
WITH ready AS (
  SELECT msg_id FROM q WHERE vt <= clock_timestamp() ORDER BY msg_id LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE q SET vt = clock_timestamp() + interval '30 seconds', read_ct = read_ct + 1
FROM ready WHERE q.msg_id = ready.msg_id
RETURNING q.msg_id, q.read_ct, q.enqueued_at, q.vt, q.message`
	tableDelete  = `DELETE FROM q WHERE msg_id = ANY($1) RETURNING msg_id`
	tableArchive = `
WITH archived AS (DELETE FROM q WHERE msg_id = ANY($1) RETURNING msg_id, vt, read_ct, enqueued_at, message)
INSERT INTO a (msg_id, vt, read_ct, enqueued_at, message) SELECT msg_id, vt, read_ct, enqueued_at, message FROM archived
RETURNING msg_id`
)

// PrepareTable makes the tables of the raw SQL.
func PrepareTable(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return fmt.Errorf("raw SQL: %w", err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, tableSchema); err != nil {
		return fmt.Errorf("raw SQL: %w", err)
	}
	return nil
}

func (t tableShape) open(ctx context.Context, s Spec) (load, error) {
	config, err := pgxpool.ParseConfig(s.Database)
	if err != nil {
		return nil, fmt.Errorf("raw SQL: %w", err)
	}
	config.MaxConns = int32(t.callers)
	t.spec, t.bodies = s, newBodies(s.Payload, func(text string) string { return `{"body":"` + text + `"}` })
	t.pool, err = pgxpool.NewWithConfig(ctx, config)
	return &t, err
}

func (t *tableShape) close() { t.pool.Close() }

func (t *tableShape) fill(ctx context.Context, n int) error {
	const most = 1000
	for ; n > 0; n -= most {
		if err := t.send(ctx, min(n, most)); err != nil {
			return err
		}
	}
	return nil
}

func (t *tableShape) send(ctx context.Context, n int) error {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = t.bodies.text()
	}
	ids, err := t.ids(ctx, tableSend, texts)
	if err == nil && len(ids) != n {
		err = errors.New("raw SQL: not all messages were sent")
	}
	return err
}

// ids runs a statement that returns identifiers.
func (t *tableShape) ids(ctx context.Context, sql string, args ...any) ([]int64, error) {
	rows, err := t.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	return out, rows.Err()
}

// read takes every column, as a worker would.
func (t *tableShape) read(ctx context.Context, n int) ([]int64, error) {
	rows, err := t.pool.Query(ctx, tableRead, n)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []int64
	for rows.Next() {
		var (
			id           int64
			count        int32
			enqueued, vt time.Time
			message      []byte
		)
		if err := rows.Scan(&id, &count, &enqueued, &vt, &message); err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	return out, rows.Err()
}

func (t *tableShape) cycle(ctx context.Context, m *Meter) error {
	finish := tableDelete
	if t.archive {
		finish = tableArchive
	}
	return crowd(ctx, t.callers, func(ctx context.Context, _ int) error {
		for ctx.Err() == nil {
			start := time.Now()
			if err := t.send(ctx, t.batch); err != nil {
				return err
			}
			m.Took(StepEnqueue, start)
			for left := t.batch; left > 0; {
				start = time.Now()
				ids, err := t.read(ctx, left)
				if err != nil {
					return err
				}
				if len(ids) == 0 {
					continue
				}
				m.Took(StepClaim, start)
				start = time.Now()
				gone, err := t.ids(ctx, finish, ids)
				if err != nil {
					return err
				}
				m.Took(StepComplete, start)
				left -= len(gone)
				m.Done(len(gone))
			}
		}
		return nil
	})
}
