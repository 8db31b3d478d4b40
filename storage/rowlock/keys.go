package rowlock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/queuebox/queuebox/storage"
)

const (
	qKeyAdd       statement = "key_add"
	qKeyIDs       statement = "key_ids"
	qKeyNames     statement = "key_names"
	qKeysOf       statement = "keys_of"
	qKeyLock      statement = "key_lock"
	qKeyLockFree  statement = "key_lock_free"
	qMessageWait  statement = "message_wait"
	qMessageTry   statement = "message_try"
	qMessageThere statement = "message_there"
)

// keyName names an ordering key.
type keyName struct {
	queueID int32
	name    string
}

func compareKeys(a, b keyName) int {
	return cmp.Or(cmp.Compare(a.queueID, b.queueID), cmp.Compare(a.name, b.name))
}

// taken says what becomes of a key that somebody else has locked.
type taken bool

const (
	// waitTaken waits for it, as long as the session waits for locks.
	waitTaken taken = false
	// skipTaken passes it over, as upkeep does, which waits for nobody.
	skipTaken taken = true
)

// lockedKeys are the ordering keys that a transaction has locked.
type lockedKeys struct {
	// ids are those of all of them, in the order of the locks: promote takes them.
	ids []int64
	// named has the keys that were asked for by name.
	named map[keyName]int64
	// of has the keys of live messages, by the id of the message.
	of map[int64]int64
	// missed are the live messages whose key somebody else has, where it was passed over.
	missed map[int64]bool
}

// has tells whether the transaction may end or move a message: one without an ordering key,
// or one whose key is locked.
func (k lockedKeys) has(key sql.NullInt64) bool {
	return !key.Valid || slices.Contains(k.ids, key.Int64)
}

// lockKeys locks the ordering keys of those of the messages that are live and have one, in the
// one order that is used everywhere (D12). It comes before every look at the messages of a
// key: whoever waits for a lock and has looked before knows what was so before he waited.
func (c *session) lockKeys(ctx context.Context, refs []storage.Ref, how taken) (lockedKeys, error) {
	return c.lockAll(ctx, refs, nil, how)
}

// lockNames makes the rows of ordering keys that have none, and locks them all. A message that
// is inserted has its key from here.
func (c *session) lockNames(ctx context.Context, names []keyName, how taken) (lockedKeys, error) {
	return c.lockAll(ctx, nil, names, how)
}

// lockAll locks the keys of messages and those that are named, together.
func (c *session) lockAll(ctx context.Context, refs []storage.Ref, names []keyName, how taken) (lockedKeys, error) {
	k := lockedKeys{named: make(map[keyName]int64), of: make(map[int64]int64), missed: make(map[int64]bool)}
	found := make(map[int64]keyName)
	if err := c.findNames(ctx, names, k.named); err != nil {
		return k, err
	}
	for name, id := range k.named {
		found[id] = name
	}
	if err := c.findKeysOf(ctx, refs, k.of, found); err != nil {
		return k, err
	}
	if err := c.lockFound(ctx, found, how, &k); err != nil {
		return k, err
	}
	if how == skipTaken {
		for name, id := range k.named {
			if !slices.Contains(k.ids, id) {
				delete(k.named, name)
			}
		}
		for message, id := range k.of {
			if !slices.Contains(k.ids, id) {
				delete(k.of, message)
				k.missed[message] = true
			}
		}
		return k, nil
	}
	if len(k.ids) != len(found) {
		// The sweep of the keys has removed one in between, which its message has left, or
		// which nobody needed yet.
		return k, errAgain
	}
	return k, nil
}

// errKeyTaken is the ErrLocked of an ordering key that somebody else has and that was not waited for.
var errKeyTaken = fmt.Errorf("%w: an ordering key", storage.ErrLocked)

// takenPause is the first pause of untilKeys, which doubles up to takenPauseMost.
const (
	takenPause     = 2 * time.Millisecond
	takenPauseMost = 16 * time.Millisecond
)

// untilKeys runs a transaction that locks ordering keys first. Where its waits are bounded
// (storage.LockWait) it passes over keys that somebody else has, and runs again with errKeyTaken
// until it has them or that time is over: the engines count their own waits in seconds.
func (s *Store) untilKeys(ctx context.Context, most storage.LockWait, run func(how taken) error) error {
	if most <= 0 {
		return run(waitTaken)
	}
	pause := takenPause
	for waited := time.Duration(0); ; waited += pause {
		err := run(skipTaken)
		if !errors.Is(err, errKeyTaken) || waited >= most {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		pause = min(2*pause, takenPauseMost)
	}
}

// lockKeyIDs locks those of the keys that are there.
func (c *session) lockKeyIDs(ctx context.Context, ids []int64, how taken) (lockedKeys, error) {
	var k lockedKeys
	found := make(map[int64]keyName, len(ids))
	if len(ids) == 0 {
		return k, nil
	}
	err := c.each(ctx, qKeyNames, args(c.ids(ids)), func(rows *sql.Rows) error {
		var id int64
		var n keyName
		err := rows.Scan(&id, &n.queueID, &n.name)
		found[id] = n
		return err
	})
	if err != nil {
		return k, err
	}
	return k, c.lockFound(ctx, found, how, &k)
}

// lockFound locks keys in their order and notes those that it got.
func (c *session) lockFound(ctx context.Context, found map[int64]keyName, how taken, k *lockedKeys) error {
	if len(found) == 0 {
		return nil
	}
	sorted := make([]int64, 0, len(found))
	for id := range found {
		sorted = append(sorted, id)
	}
	slices.SortFunc(sorted, func(a, b int64) int {
		return cmp.Or(compareKeys(found[a], found[b]), cmp.Compare(a, b))
	})
	q := qKeyLock
	if how == skipTaken {
		q = qKeyLockFree
	}
	return c.each(ctx, q, args(c.ids(sorted)), func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		k.ids = append(k.ids, id)
		return err
	})
}

// findNames gives the ids of the named keys and makes the rows that are missing. Where another
// transaction is just making one, this one runs again and finds it.
func (c *session) findNames(ctx context.Context, names []keyName, ids map[keyName]int64) error {
	if len(names) == 0 {
		return nil
	}
	names = distinctNames(slices.Clone(names))
	find := func(names []keyName) error {
		return c.each(ctx, qKeyIDs, args(c.names(names)), func(rows *sql.Rows) error {
			var id int64
			var n keyName
			err := rows.Scan(&id, &n.queueID, &n.name)
			ids[n] = id
			return err
		})
	}
	if err := find(names); err != nil {
		return err
	}
	missing := slices.DeleteFunc(names, func(n keyName) bool { _, ok := ids[n]; return ok })
	if len(missing) == 0 {
		return nil
	}
	want := len(ids) + len(missing)
	_, err := c.change(ctx, qKeyAdd, c.names(missing))
	switch {
	case err != nil && c.s.engine.Errors.Duplicate(err):
		return errAgain
	case err != nil:
		return err
	}
	if err := find(missing); err != nil {
		return err
	}
	if len(ids) != want {
		return errAgain
	}
	return nil
}

func (c *session) names(names []keyName) Arg {
	rows := make([][]any, len(names))
	for i, n := range names {
		rows[i] = []any{n.queueID, c.s.engine.Values.NameText(n.name)}
	}
	return c.list(rows)
}

// findKeysOf finds the keys of live messages.
func (c *session) findKeysOf(ctx context.Context, refs []storage.Ref, of map[int64]int64, found map[int64]keyName) error {
	var rows [][]any
	for _, ref := range refs {
		if keyed(ref) {
			rows = append(rows, []any{ref.QueueID, idOf(ref.Position)})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return c.each(ctx, qKeysOf, args(c.list(rows)), func(rows *sql.Rows) error {
		var message, id int64
		var n keyName
		err := rows.Scan(&message, &id, &n.queueID, &n.name)
		of[message], found[id] = id, n
		return err
	})
}

const (
	// headTries and headPause bound how often, and how soon, heads are looked at again that a
	// claim had locked without taking them.
	headTries = 50
	headPause = 10 * time.Millisecond
)

// headsAgain puts keys right for which a transaction found the head locked. It waits between
// the looks and not in one: nobody waits for anything but keys while he has the lock of one.
// What is locked for longer is left to the sweep of the keys.
func (s *Store) headsAgain(ctx context.Context, what string, keys []int64) error {
	held := true
	for n := 0; held && n < headTries; n++ {
		pause := time.NewTimer(headPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil // what the caller asked for is done
		case <-pause.C:
		}
		err := s.write(ctx, what, func(c *session) (verdict, error) {
			k, err := c.lockKeyIDs(ctx, keys, waitTaken)
			if err != nil {
				return rollback, err
			}
			_, held, err = c.promote(ctx, k.ids)
			return commit, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// waitRow waits for a live message that somebody else holds, as long as the session waits for
// locks, and has its lock until the transaction ends; false where the message is not live. Who
// has the lock of an ordering key waits for nothing else, so one who must wait for a message
// with a key does so before.
func (c *session) waitRow(ctx context.Context, ref storage.Ref) (bool, error) {
	return c.some(ctx, qMessageWait, ref)
}

// tryRow locks a live message unless somebody else has. live is false where there is none.
func (c *session) tryRow(ctx context.Context, ref storage.Ref) (live, locked bool, err error) {
	if locked, err = c.some(ctx, qMessageTry, ref); err != nil || locked {
		return locked, locked, err
	}
	live, err = c.some(ctx, qMessageThere, ref)
	return live, false, err
}

// some runs a statement about one message and tells whether it gave that one: the last bit of a
// position is part of it, and no part of the id.
func (c *session) some(ctx context.Context, q statement, ref storage.Ref) (found bool, err error) {
	err = c.each(ctx, q, args(a("queue_id", ref.QueueID), a("id", idOf(ref.Position))), func(rows *sql.Rows) error {
		var key sql.NullInt64
		err := rows.Scan(&key)
		found = key.Valid == keyed(ref)
		return err
	})
	return found, err
}

// waitOutside runs try for a message that somebody else holds, each time after a wait for its
// row during which no key is held. The next one may have the row before try does: a claim that
// saw the message before it was leased locks it once more, only to let it go. So it goes on
// until try has an answer, the row is not to be had at all, or ctx is over.
func (s *Store) waitOutside(ctx context.Context, what string, ref storage.Ref, try func() (answered bool, err error)) error {
	for {
		err := s.write(ctx, what+": wait", func(c *session) (verdict, error) {
			_, err := c.waitRow(ctx, ref)
			return rollback, err
		})
		if err != nil {
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

// unite adds queue ids that are not there yet.
func unite(ids []int32, more ...int32) []int32 {
	for _, id := range more {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}
