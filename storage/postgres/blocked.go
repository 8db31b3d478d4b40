package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Blocked implements storage.Admin.
func (s *Store) Blocked(ctx context.Context, queueID int32) (blocked bool, err error) {
	err = s.read(ctx, "blocked", step{
		sql: s.sql.blocked, args: []any{queueID},
		scan: one(func(r pgx.Rows) error { return r.Scan(&blocked) }),
	})
	return blocked, err
}
