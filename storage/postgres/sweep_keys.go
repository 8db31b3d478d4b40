package postgres

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

// keysAtOnce bounds the keys that one transaction of SweepKeys locks.
const keysAtOnce = 200

// SweepKeys implements storage.Upkeep: one look at the page, which is all where nothing is to
// be done, and then one transaction for some of the keys that need something.
func (s *Store) SweepKeys(ctx context.Context, p storage.SweepKeysParams) (storage.SweepKeysResult, error) {
	return s.sweepKeysAt(ctx, p, time.Now()) //nolint:forbidigo // The pace of this process, not the time of a message.
}

func (s *Store) sweepKeysAt(ctx context.Context, p storage.SweepKeysParams, now time.Time) (storage.SweepKeysResult, error) {
	var (
		out        storage.SweepKeysResult
		idle, rest []int64
		newest     int64
	)
	err := s.read(ctx, "sweep keys", step{
		sql: s.sql.keysLook, args: []any{p.After, int64(max(p.Limit, 1)), s.keyUse.since(now, p.IdleFor)},
		scan: each(func() { out, idle, rest = storage.SweepKeysResult{}, nil, nil }, func(r pgx.Rows) error {
			var (
				next, key *int64
				isIdle    *bool
			)
			if err := r.Scan(&out.Now, &out.Queues, &next, &key, &isIdle, &newest); err != nil {
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
	s.keyUse.saw(now, newest, p.IdleFor)
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

// keyUse tells since when a key is idle without a note for each key: the row of a key names the
// transaction that locked it last, so all that is remembered is which transactions there were at
// a few moments. It is the same for all keys, and each server may have its own.
type keyUse struct {
	mu    sync.Mutex
	marks []keyMark // the oldest first
}

// keyMark says that transactions from next on began after at, but for those that ran just then.
type keyMark struct {
	at   time.Time
	next int64
}

// keyMarks is how many marks there are for the time that a key must have been idle.
const keyMarks = 8

// since is the first transaction by which a key was used too recently to remove its row: none
// where that may be at once, and any while this store has not known them for long enough.
func (u *keyUse) since(now time.Time, idle time.Duration) int64 {
	if idle <= 0 {
		return math.MaxInt64
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	next := int64(0)
	for len(u.marks) > 0 && now.Sub(u.marks[0].at) >= idle {
		next = u.marks[0].next
		if len(u.marks) == 1 || now.Sub(u.marks[1].at) < idle {
			break
		}
		u.marks = u.marks[1:]
	}
	return next
}

// saw notes the present transactions.
func (u *keyUse) saw(now time.Time, next int64, idle time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := len(u.marks); idle > 0 && (n == 0 || now.Sub(u.marks[n-1].at) >= idle/keyMarks) {
		u.marks = append(u.marks, keyMark{at: now, next: next})
	}
}
