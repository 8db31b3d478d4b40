package postgres

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

// What the idempotency key of a row decides.
const (
	verdictPlace     int16 = 1
	verdictDuplicate int16 = 2
	verdictReused    int16 = 3
)

// taken is a row of incoming that this transaction has, with its keys.
type taken struct {
	ownRow

	queueID int32
	ordered bool
	key     string
	hash    []byte
}

// placeKeyed places rows with ordering or idempotency keys.
func (s *Store) placeKeyed(ctx context.Context, batch []incoming, out *storage.PlaceResult) error {
	for range keyTries {
		if again, err := s.placeKeyedOnce(ctx, batch, out); err != nil || !again {
			return err
		}
	}
	return fmt.Errorf("postgres: place: %w: an idempotency key keeps vanishing", storage.ErrUnavailable)
}

// placeKeyedOnce does it in one transaction of three round trips: the ordering keys are locked,
// then the rows are taken (D12: the order of a key is that of the rows which are there once its
// lock is held); positions are drawn and the idempotency keys taken; then what they say decides.
// again says that nothing was placed, since an idempotency key went away between two statements.
func (s *Store) placeKeyedOnce(ctx context.Context, batch []incoming, out *storage.PlaceResult) (again bool, err error) {
	var keys []namedKey
	for _, r := range batch {
		if r.orderingKey != "" {
			keys = append(keys, namedKey{queueID: r.queueID, name: r.orderingKey})
		}
	}
	var (
		res   storage.PlaceResult
		heads []int32
	)
	err = s.converse(ctx, "place", func(send func(...step) error) (bool, error) {
		res, heads, again = storage.PlaceResult{}, nil, false
		rows, err := s.takeIncoming(send, keys, batch)
		if err != nil || len(rows) == 0 {
			return false, err
		}
		positions, held, err := s.drawKeyed(send, rows)
		if err != nil {
			return false, err
		}
		var (
			verdicts []int16
			take     keyTake
		)
		if verdicts, take, again = decideKeyed(rows, positions, held, &res); again {
			return false, nil
		}
		steps := atMost(ownKeyWait) // drawKeyed has set less
		if len(take.ids) > 0 {
			steps = append(steps, step{sql: s.sql.enqueueKeysTake, args: []any{take.ids, take.keys, take.positions, take.hashes}})
		}
		xids, seqs := namesOf(rows, func(r taken) ownRow { return r.ownRow })
		steps = append(steps, step{sql: s.sql.own.insert, args: []any{xids, seqs, positions, verdicts}, scan: each(nil, func(r pgx.Rows) error {
			var (
				gone    int64
				queueID *int32
				at      *time.Time
			)
			if err := r.Scan(&res.Now, &gone, &queueID, &at); err != nil {
				return err
			}
			if queueID != nil {
				res.Ready = append(res.Ready, storage.QueueReady{QueueID: *queueID, ReadyTime: at.UTC()})
			}
			return nil
		})})
		if len(keys) > 0 {
			steps = append(steps, s.promoteStep(&heads))
		}
		return true, send(steps...)
	})
	if err != nil || again {
		return again, err
	}
	out.Placed += res.Placed
	out.Duplicates += res.Duplicates
	out.Reused += res.Reused
	if !res.Now.IsZero() {
		out.Now = res.Now.UTC()
	}
	for _, r := range res.Ready {
		out.Ready = earliest(out.Ready, r)
	}
	for _, id := range heads {
		out.Ready = earliest(out.Ready, storage.QueueReady{QueueID: id, ReadyTime: out.Now})
	}
	return false, nil
}

// takeIncoming locks ordering keys and then takes the rows, in the order of their
// transactions and statements.
func (s *Store) takeIncoming(send func(...step) error, keys []namedKey, batch []incoming) ([]taken, error) {
	var (
		steps      []step
		rows       []taken
		xids, seqs = namesOf(batch, func(r incoming) ownRow { return r.ownRow })
	)
	if len(keys) > 0 {
		steps = s.takeNames(uniqueKeys(slices.Clone(keys)), ownKeyWait)
	}
	err := send(append(steps, step{sql: s.sql.own.take, args: []any{xids, seqs}, scan: each(nil, func(r pgx.Rows) error {
		var (
			row               taken
			ordering, idemKey *string
		)
		if err := r.Scan(&row.xid, &row.seq, &row.queueID, &ordering, &idemKey, &row.hash); err != nil {
			return err
		}
		row.ordered, row.key = ordering != nil, text(idemKey)
		rows = append(rows, row)
		return nil
	})})...)
	number := func(r taken) uint64 {
		n, _ := strconv.ParseUint(r.xid, 10, 64) // it is what the database calls a number
		return n
	}
	slices.SortFunc(rows, func(a, b taken) int {
		return cmp.Or(cmp.Compare(number(a), number(b)), cmp.Compare(a.seq, b.seq))
	})
	return rows, err
}

// drawKeyed draws the positions of rows and takes, locks and reads their idempotency keys. One that
// somebody has is not waited for: neither those who need an ordering key of these rows nor the
// other rows wait with it (E6), and the next call comes back.
func (s *Store) drawKeyed(send func(...step) error, rows []taken) ([]int64, map[queueKey]heldKey, error) {
	var (
		ids       = make([]int32, len(rows))
		keys      = make([]string, len(rows))
		hashes    = make([][]byte, len(rows))
		ordered   = make([]bool, len(rows))
		positions = make([]int64, len(rows))
		held      = make(map[queueKey]heldKey)
	)
	for i, r := range rows {
		ids[i], keys[i], hashes[i], ordered[i] = r.queueID, r.key, r.hash, r.ordered
	}
	err := send(append(
		atMost(briefly),
		step{sql: s.sql.enqueueKeys, args: []any{ids, keys, hashes, ordered}, scan: each(nil, func(r pgx.Rows) error {
			var ord, position, n int64
			if err := r.Scan(&ord, &position, &n); err != nil {
				return err
			}
			positions[ord-1] = position
			return nil
		})},
		step{sql: s.sql.enqueueKeysLock, args: []any{ids, keys}},
		step{sql: s.sql.enqueueKeysRead, args: []any{ids, keys}, scan: each(nil, func(r pgx.Rows) error {
			var k queueKey
			var h heldKey
			if err := r.Scan(&k.queueID, &k.key, &h.position, &h.hash, &h.state); err != nil {
				return err
			}
			held[k] = h
			return nil
		})},
	)...)
	return positions, held, err
}

// keyTake holds the idempotency keys to take over, as the arrays of enqueue_keys_take.sql.
type keyTake struct {
	ids       []int32
	keys      []string
	positions []int64
	hashes    [][]byte
}

// decideKeyed says what becomes of each row, and counts it.
func decideKeyed(rows []taken, positions []int64, held map[queueKey]heldKey, res *storage.PlaceResult) (verdicts []int16, take keyTake, again bool) {
	verdicts = make([]int16, len(rows))
	mine := make(map[queueKey][]byte) // the content of the row of this batch that has the key
	for i, r := range rows {
		k := queueKey{queueID: r.queueID, key: r.key}
		same := func(hash []byte) {
			verdicts[i] = verdictReused
			if bytes.Equal(hash, r.hash) {
				verdicts[i] = verdictDuplicate
			}
		}
		verdicts[i] = verdictPlace
		if r.key != "" {
			h, ok := held[k]
			first, before := mine[k]
			switch {
			case before:
				same(first)
			case !ok:
				return nil, keyTake{}, true
			case h.position == positions[i]:
				mine[k] = r.hash
			case h.state == nil:
				mine[k] = r.hash
				take.ids, take.keys = append(take.ids, r.queueID), append(take.keys, r.key)
				take.positions, take.hashes = append(take.positions, positions[i]), append(take.hashes, r.hash)
			default:
				same(h.hash)
			}
		}
		switch verdicts[i] {
		case verdictPlace:
			res.Placed++
		case verdictDuplicate:
			res.Duplicates++
		default:
			res.Reused++
		}
	}
	return verdicts, take, false
}
