package postgres

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/queuebox/queuebox/storage"
)

// keyed tells whether a message has an ordering key: its position is odd. Whatever may end
// or move such a message goes through withKeys; only a claim and a renewal do not.
func keyed(ref storage.Ref) bool { return ref.Position&1 == 1 }

// namedKey is an ordering key; an empty name is none.
type namedKey struct {
	queueID int32
	name    string
}

// namedKeys are keys that are locked together, each of them once and in the one order that is
// used everywhere (D12): by queue, then by the bytes of the name.
type namedKeys []namedKey

// uniqueKeys puts keys in their order.
func uniqueKeys(keys []namedKey) namedKeys {
	slices.SortFunc(keys, func(a, b namedKey) int {
		return cmp.Or(cmp.Compare(a.queueID, b.queueID), strings.Compare(a.name, b.name))
	})
	return slices.Compact(keys)
}

// columns are the arguments of the statements that lock them.
func (k namedKeys) columns() (ids []int32, names []string) {
	ids, names = make([]int32, len(k)), make([]string, len(k))
	for i := range k {
		ids[i], names[i] = k[i].queueID, k[i].name
	}
	return ids, names
}

// places tells which of the keys each message has, counted from 1 as the database counts and 0 for
// none, and whether another one of messages stands before it in its key.
func (k namedKeys) places(messages []storage.NewMessage) (which []int32, behind []bool) {
	at := make(map[namedKey]int32, len(k))
	for i, key := range k {
		at[key] = int32(i + 1)
	}
	which, behind = make([]int32, len(messages)), make([]bool, len(messages))
	seen := make([]bool, len(k)+1)
	for i := range messages {
		m := &messages[i]
		if m.OrderingKey == "" {
			continue
		}
		n := at[namedKey{queueID: m.QueueID, name: m.OrderingKey}]
		which[i], behind[i], seen[n] = n, seen[n], true
	}
	return which, behind
}

// withKeys gives the steps of one transaction that does something to messages with ordering
// keys: it locks the keys of the live ones among refs (D12), does it, and puts the keys right.
// ready, where not nil, hears of the queues in which a message became the head of its key.
func (s *Store) withKeys(refs []storage.Ref, wait storage.LockWait, ready *[]int32, steps ...step) []step {
	return s.locked(s.sql.lockKeys, refs, wait, ready, steps)
}

// withFreeKeys is withKeys for upkeep, which waits for nobody: a key that somebody has is
// passed over, and the steps see to it by the setting that they leave its messages alone.
func (s *Store) withFreeKeys(refs []storage.Ref, ready *[]int32, steps ...step) []step {
	return s.locked(s.sql.lockKeysFree, refs, 0, ready, steps)
}

func (s *Store) locked(lock string, refs []storage.Ref, wait storage.LockWait, ready *[]int32, steps []step) []step {
	all := make([]step, 0, len(steps)+2)
	all = append(all, lockRefs(lock, refs, wait))
	all = append(all, steps...)
	return append(all, s.promoteStep(ready))
}

// lockRefs locks the keys of messages by lock_keys.sql, or as that does.
func lockRefs(lock string, refs []storage.Ref, wait storage.LockWait) step {
	ids, positions := splitRefs(refs)
	return step{sql: lock, args: []any{ids, positions, waits(wait)}}
}

// takeNames locks keys and makes the rows that are missing. Where one went away meanwhile, or
// somebody else made it, the step that inserts a message of it sets its place to null, and the
// transaction runs again (keyVanished), with statements before it after which all of them are there
// and none goes away.
func (s *Store) takeNames(keys namedKeys, wait storage.LockWait) []step {
	ids, names := keys.columns()
	return append(
		keep(wait),
		step{sql: s.sql.addNames, args: []any{ids, names}, rerun: true},
		step{sql: s.sql.takeNames, args: []any{ids, names, waits(wait)}},
	)
}

// keepKeys keeps the sweep from removing rows of keys (remove_keys.sql) until the transaction ends.
// What is missing is made then, and after that all is locked: to lock a key and to wait with it for
// one that somebody is just making would be a wait for somebody who may wait for that lock (D12).
const keepKeys = "SELECT pg_advisory_xact_lock_shared(7420742074207424)"

// keep gives keepKeys for a transaction that runs again.
func keep(wait storage.LockWait) []step {
	steps := append(atMost(wait), step{sql: keepKeys})
	for i := range steps {
		steps[i].rerun = true
	}
	return steps
}

// promoteStep puts the keys right that an earlier step of the transaction has locked.
func (s *Store) promoteStep(ready *[]int32) step { return s.headsStep(ready, nil) }

// headsStep is promoteStep and tells whether a pending head was passed over, since somebody
// has locked it.
func (s *Store) headsStep(ready *[]int32, held *bool) step {
	return step{sql: s.sql.promote, scan: each(
		func() {
			if ready != nil {
				*ready = nil
			}
			if held != nil {
				*held = false
			}
		},
		func(r pgx.Rows) error {
			var (
				id     *int32
				locked bool
			)
			err := r.Scan(&id, &locked)
			if ready != nil && id != nil {
				*ready = append(*ready, *id)
			}
			if held != nil && locked {
				*held = true
			}
			return err
		},
	)}
}

const (
	// headTries and headPause bound how often, and how soon, heads are looked at again that a
	// claim had locked without taking them.
	headTries = 50
	headPause = 10 * time.Millisecond
)

// headsAgain puts the keys of messages right for which a transaction found the head locked. It
// waits between the looks and not in one: nobody waits for anything but keys while he has the
// lock of one. What is locked for longer is left to the sweep of the keys.
func (s *Store) headsAgain(ctx context.Context, what string, refs []storage.Ref) error {
	held := true
	for n := 0; held && n < headTries; n++ {
		pause := time.NewTimer(headPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil // what the caller asked for is done
		case <-pause.C:
		}
		err := s.write(ctx, what, lockRefs(s.sql.lockKeys, refs, 0), s.headsStep(nil, &held))
		if err != nil {
			return err
		}
	}
	return nil
}

// waitRow waits for a message that somebody else holds, before its key is locked: nobody
// waits for anything but keys while he has the lock of one.
func (s *Store) waitRow(ctx context.Context, what string, ref storage.Ref) error {
	return s.write(ctx, what+": wait", step{sql: s.sql.waitRow, args: []any{ref.QueueID, ref.Position}})
}

// waitOutside runs try for a message that somebody else holds, each time after a wait for its
// row during which no key is held. The next one may have the row before try does: a claim that
// saw the message before it was leased locks it once more, only to let it go. So it goes on
// until try has an answer, the row is not to be had at all, or the time of the lane is over.
func (s *Store) waitOutside(ctx context.Context, what string, ref storage.Ref, try func() (answered bool, err error)) error {
	for {
		if err := s.waitRow(ctx, what, ref); err != nil {
			return err
		}
		if answered, err := try(); answered || err != nil {
			return err
		}
		pause := time.NewTimer(time.Duration((1 + 4*rand.Float64()) * float64(time.Millisecond))) //nolint:gosec // No secret hangs on a pause.
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil
		}
	}
}

func splitRefs(refs []storage.Ref) (ids []int32, positions []int64) {
	ids, positions = make([]int32, 0, len(refs)), make([]int64, 0, len(refs))
	for _, r := range refs {
		ids, positions = append(ids, r.QueueID), append(positions, r.Position)
	}
	return ids, positions
}

// unite adds queue ids that are not there yet.
func unite(ids []int32, more ...int32) []int32 {
	for _, id := range more {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// keyVanished tells that the row of an ordering key was removed, as one that nobody needs,
// before the transaction that needs it had its lock.
func keyVanished(err error) bool { return nullColumn(err) == "place" }

// nullColumn names the column that refused a null.
func nullColumn(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == codeNotNullViolation {
		return pg.ColumnName
	}
	return ""
}
