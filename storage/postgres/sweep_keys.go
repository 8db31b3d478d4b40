package postgres

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

const (
	// keysAtOnce bounds the keys that one transaction of SweepKeys locks.
	keysAtOnce = 200
	// keyCost is how long it may take to find that a key has no message. What takes longer walks
	// over dozens of messages of the key that died while somebody held a snapshot, and so does
	// every enqueue and every settlement of the key: its row goes as soon as no message needs it,
	// and the next message makes the key anew, under an id that no dead message has. It is not
	// removed after each message either, since then the index of the names would keep as many
	// entries of it.
	keyCost = 50 * time.Microsecond
)

// SweepKeys implements storage.Upkeep: one look at the page, which is all where nothing is to
// be done, and then one transaction for some of the keys that need something.
func (s *Store) SweepKeys(ctx context.Context, p storage.SweepKeysParams) (storage.SweepKeysResult, error) {
	return s.sweepKeysAt(ctx, p, time.Now()) //nolint:forbidigo // The pace of this process, not the time of a message.
}

func (s *Store) sweepKeysAt(ctx context.Context, p storage.SweepKeysParams, now time.Time) (storage.SweepKeysResult, error) {
	var out storage.SweepKeysResult
	limit := int64(max(p.Limit, 1))
	since := s.keyUse.since(now, p.IdleFor)
	for spent := time.Duration(0); p.After == 0 && spent < lookTime; {
		// Some of what is left out of the pages, since no key was there.
		piece, ok := s.emptyKeys.again(now)
		if !ok {
			break
		}
		page, err := s.lookAtKeys(ctx, []stretch{piece}, limit, since, 0)
		if err != nil {
			return out, err
		}
		s.emptyKeys.looked(piece, page.rows, int64(len(page.rows)) >= limit, page.took)
		if err := s.putKeysRight(ctx, page, &out); err != nil {
			return out, err
		}
		spent += max(page.took, lookTime/lookPieces)
	}
	parts := s.emptyKeys.parts(storage.Ref{Position: p.After})
	page, err := s.lookAtKeys(ctx, parts, limit, since, s.emptyKeys.costly)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			s.emptyKeys.failed()
		}
		return out, err
	}
	s.emptyKeys.met(now, parts, page.newest, page.rows, page.next != 0, page.took)
	s.keyUse.saw(now, page.transaction, p.IdleFor)
	out.Next = page.next
	if end := parts[len(parts)-1].to; out.Next == 0 && end != lastPlace {
		out.Next = end.Position - 1
	}
	return out, s.putKeysRight(ctx, page, &out)
}

// keysPage is what one look at keys has found.
type keysPage struct {
	now         time.Time
	queues      []int32
	next        int64
	idle, rest  []int64 // keys that can go, and those that are not right
	transaction int64   // the next one

	took   time.Duration
	newest int64
	rows   []storage.Ref // what it looked at, in order; nil where that cost little
}

func (s *Store) lookAtKeys(ctx context.Context, parts []stretch, limit, since int64, costly time.Duration) (out keysPage, err error) {
	_, from, _, to := splitStretches(parts)
	err = s.read(ctx, "sweep keys", step{
		sql: s.sql.keysLook, args: []any{from, limit, since, to, s.keyCost.Microseconds(), costly.Microseconds()},
		scan: each(func() { out = keysPage{} }, func(r pgx.Rows) error {
			var (
				next, key, newest *int64
				isIdle            *bool
				us                int64
				rows              []int64
			)
			if err := r.Scan(&out.now, &out.queues, &next, &key, &isIdle, &out.transaction, &newest, &us, &rows); err != nil {
				return err
			}
			if next != nil {
				out.next = *next
			}
			if newest != nil {
				out.newest = *newest
			}
			if out.took = time.Duration(us) * time.Microsecond; out.took >= costly {
				out.rows = make([]storage.Ref, 0, len(rows))
				for _, id := range rows {
					out.rows = append(out.rows, storage.Ref{Position: id})
				}
			}
			switch {
			case key == nil:
			case is(isIdle):
				out.idle = append(out.idle, *key)
			default:
				out.rest = append(out.rest, *key)
			}
			return nil
		}),
	})
	return out, err
}

// putKeysRight does what a look has found to be done. Keys that somebody waits for come first.
func (s *Store) putKeysRight(ctx context.Context, page keysPage, out *storage.SweepKeysResult) error {
	out.Now = page.now.UTC()
	out.Queues = unite(out.Queues, page.queues...)
	for some := range slices.Chunk(append(page.rest, page.idle...), keysAtOnce) {
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
			return err
		}
		out.Removed += int(removed)
		out.Ready = unite(out.Ready, ready...)
	}
	return nil
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
