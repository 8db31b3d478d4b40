package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

// keysAtOnce bounds the keys that one transaction of SweepKeys locks.
const keysAtOnce = 200

// SweepKeys implements storage.Upkeep: one look at the page, which is all where nothing is to
// be done, and then one transaction for some of the keys that need something.
func (s *Store) SweepKeys(ctx context.Context, p storage.SweepKeysParams) (storage.SweepKeysResult, error) {
	var (
		out        storage.SweepKeysResult
		idle, rest []int64
	)
	err := s.read(ctx, "sweep keys", step{
		sql: s.sql.keysLook, args: []any{p.After, int64(max(p.Limit, 1))},
		scan: each(func() { out, idle, rest = storage.SweepKeysResult{}, nil, nil }, func(r pgx.Rows) error {
			var (
				next, key *int64
				isIdle    *bool
			)
			if err := r.Scan(&out.Now, &out.Queues, &next, &key, &isIdle); err != nil {
				return err
			}
			if next != nil {
				out.Next = *next
			}
			switch {
			case key == nil:
			case is(isIdle):
				idle = append(idle, *key)
			default:
				rest = append(rest, *key)
			}
			return nil
		}),
	})
	if err != nil {
		return storage.SweepKeysResult{}, err
	}
	out.Now = out.Now.UTC()
	// Those that somebody waits for come first.
	for some := range slices.Chunk(append(rest, idle...), keysAtOnce) {
		var (
			removed int64
			ready   []int32
		)
		err := s.write(
			ctx, "sweep keys",
			step{sql: s.sql.lockKeyIDs, args: []any{some}},
			step{sql: s.sql.removeKeys, scan: one(func(r pgx.Rows) error { return r.Scan(&removed) })},
			s.promoteStep(&ready),
		)
		if err != nil {
			return out, err
		}
		out.Removed += int(removed)
		out.Ready = unite(out.Ready, ready...)
	}
	return out, nil
}
