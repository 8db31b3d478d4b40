package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

const (
	// retainRows and retainBytes bound one statement of Retain.
	retainRows  = 1000
	retainBytes = 16 << 20
	// retainStatements bounds one call, whatever its limit.
	retainStatements = 20
	// retainKeyRows is how many rows of an hour are asked for their keys at once.
	retainKeyRows = 2000
	// dropIsNear is how long rows wait for the drop of their hour instead of being deleted.
	// Nobody sees them any more in any case.
	dropIsNear = 3 * time.Hour
)

// hour is a partition that is over. queueID is nil where it is over for all queues and
// may be dropped.
type hour struct {
	parent, name string
	from, until  time.Time
	queueID      *int32
}

// Retain implements storage.Upkeep. Each statement is a transaction of its own and tries
// for the lock that makes one replica at a time do this; whoever has it not does nothing.
func (s *Store) Retain(ctx context.Context, p storage.RetainParams) (storage.RetainResult, error) {
	r := retention{store: s, limit: max(p.Limit, 1)}
	err := r.run(ctx)
	return r.out, err
}

// retention is one call of Retain.
type retention struct {
	store      *Store
	limit      int
	statements int
	out        storage.RetainResult
	beaten     bool // another replica is at it
}

func (r *retention) run(ctx context.Context) error {
	s := r.store
	for _, sql := range []string{s.sql.retainDead, s.sql.retainCompleted} {
		if err := r.rows(ctx, sql, true); err != nil || r.beaten {
			return err
		}
	}
	if err := r.rows(ctx, s.sql.retainSettlement, false); err != nil || r.beaten {
		return err
	}
	hours, err := r.hours(ctx)
	if err != nil {
		return err
	}
	for _, h := range hours {
		switch {
		case r.beaten:
			return nil
		case h.queueID == nil:
			err = r.drop(ctx, h)
		case h.parent == "completed":
			err = r.rows(ctx, s.sql.retainCompletedHour, true, *h.queueID, h.from, h.until)
		default:
			err = r.rows(ctx, s.sql.retainSettlementHour, false, *h.queueID, h.from, h.until)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rows runs a statement that deletes rows until nothing is left for it or a limit is met.
// more are its arguments after the bounds; sized says that it bounds the bytes too.
func (r *retention) rows(ctx context.Context, sql string, sized bool, more ...any) error {
	for left := true; left && !r.beaten; {
		if r.out.Deleted >= r.limit || r.statements >= retainStatements {
			r.out.More = true
			return nil
		}
		r.statements++
		args := []any{int64(min(retainRows, r.limit-r.out.Deleted))}
		if sized {
			args = append(args, int64(retainBytes))
		}
		var (
			had  bool
			gone int64
			now  time.Time
		)
		err := r.store.write(ctx, "retain", step{sql: sql, args: append(args, more...), scan: one(func(rows pgx.Rows) error {
			return rows.Scan(&now, &had, &gone, &left)
		})})
		if err != nil {
			return err
		}
		r.beaten = !had
		r.out.Now = now.UTC()
		r.out.Deleted += int(gone)
		// Where nothing went although there is something, somebody holds it: not now.
		left = left && gone > 0
	}
	return nil
}

func (r *retention) hours(ctx context.Context) (hours []hour, err error) {
	err = r.store.read(ctx, "retain: hours", step{
		sql: r.store.sql.retainHours, args: []any{dropIsNear.Microseconds()},
		scan: each(func() { hours = nil }, func(rows pgx.Rows) error {
			var h hour
			err := rows.Scan(&h.parent, &h.name, &h.from, &h.until, &h.queueID)
			hours = append(hours, h)
			return err
		}),
	})
	return hours, err
}

// drop drops an hour, after the keys that name its messages.
func (r *retention) drop(ctx context.Context, h hour) error {
	if h.parent == "completed" {
		if free, err := r.keys(ctx, h); err != nil || !free || r.beaten {
			return err
		}
	}
	table := pgx.Identifier{"queuebox", h.name}.Sanitize()
	var had bool
	err := r.store.transact(ctx, "retain: drop",
		[]step{
			// All who complete wait while the drop waits for its lock, so it must not wait long.
			{sql: "SELECT set_config('lock_timeout', '50ms', true)"},
			{sql: onlyOne, scan: one(func(rows pgx.Rows) error { return rows.Scan(&had) })},
		},
		func() ([]step, bool) { return []step{{sql: "DROP TABLE " + table}}, had },
	)
	switch code(err) {
	case codeLockNotAvailable, codeUndefinedTable, codeInsufficientPrivilege, codeDeadlockDetected:
		// Busy, or dropped by another server meanwhile, or a right that went away.
		r.store.log.DebugContext(ctx, "partition not dropped", "partition", h.name, "code", code(err))
		return nil
	}
	if err != nil {
		return err
	}
	r.beaten = !had
	if had {
		r.out.PartitionsDropped++
	}
	return nil
}

// keyPass is how far the freeing of an hour's keys has come. One call of Retain is bounded
// and an hour is not, so the next call goes on where this one ended.
type keyPass struct {
	hour  string
	after storage.Ref
	held  bool // somebody holds a key that was passed over
}

// keys frees the keys of an hour. free says that none is left.
func (r *retention) keys(ctx context.Context, h hour) (free bool, err error) {
	r.store.retainLock.Lock()
	defer r.store.retainLock.Unlock()
	pass := &r.store.retainKeys
	if pass.hour != h.name {
		*pass = keyPass{hour: h.name}
	}
	for {
		if r.statements >= retainStatements {
			r.out.More = true
			return false, nil
		}
		r.statements++
		var (
			had      bool
			held     int64
			queueID  *int32
			position *int64
		)
		err := r.store.write(ctx, "retain: keys", step{
			sql: r.store.sql.retainKeys, args: []any{int64(retainKeyRows), h.from, h.until, pass.after.QueueID, pass.after.Position},
			scan: one(func(rows pgx.Rows) error { return rows.Scan(&had, &held, &queueID, &position) }),
		})
		if err != nil {
			return false, err
		}
		if !had {
			r.beaten = true
			return false, nil
		}
		pass.held = pass.held || held > 0
		if queueID == nil {
			free = !pass.held
			*pass = keyPass{}
			return free, nil
		}
		pass.after = storage.Ref{QueueID: *queueID, Position: *position}
	}
}

// onlyOne tries for the lock of all statements of Retain, by itself.
const onlyOne = "SELECT pg_try_advisory_xact_lock(7420742074207423)"
