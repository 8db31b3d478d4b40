package rowlock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/queuebox/queuebox/storage"
)

const (
	qOwnIncoming       statement = "own_incoming"
	qOwnKeyed          statement = "own_keyed"
	qOwnTake           statement = "own_take"
	qOwnIncomingDelete statement = "own_incoming_delete"
	qOwnRefuse         statement = "own_refuse"
	qOwnReused         statement = "own_reused"
	qOwnReusedHeads    statement = "own_reused_heads"
)

const (
	// What one transaction of Place or Finish takes at most.
	ownRows  = 200
	ownBytes = 4 << 20
)

// incoming is a row that waits to be placed.
type incoming struct {
	id          int64
	queueID     int32
	orderingKey string
	idempotent  bool
	bytes       int64
}

func (r incoming) plain() bool { return r.orderingKey == "" && !r.idempotent }

// Place implements storage.Own: one look, then small transactions. Messages with keys go by
// themselves, so that a key which somebody has keeps nobody else back.
func (s *Store) Place(ctx context.Context, p storage.PlaceParams) (storage.PlaceResult, error) {
	var (
		out  storage.PlaceResult
		rows []incoming
	)
	limit := max(p.Limit, 1)
	s.moveBound(ctx, "place", s.incomingBound, qOwnIncomingFirst)
	from := s.incomingBound.start()
	err := s.read(ctx, "place: look", func(c *session) error {
		rows = nil
		err := c.each(ctx, qOwnIncoming, args(a("from", from), a("look", limit)), func(r *sql.Rows) error {
			var row incoming
			err := r.Scan(&row.id, &row.queueID, &row.orderingKey, &row.idempotent, &row.bytes)
			rows = append(rows, row)
			return err
		})
		if err == nil {
			out.Now, err = c.now(ctx)
		}
		return err
	})
	if err != nil || len(rows) == 0 {
		return out, err
	}
	s.incomingBound.saw(rows[0].id, rows[len(rows)-1].id)
	// The order of a key is that of all its rows, so those of an earlier transaction that failed
	// are looked for once more with each later one.
	first := rows[0].id
	var plain, keyed []incoming
	for _, r := range rows {
		if r.plain() {
			plain = append(plain, r)
		} else {
			keyed = append(keyed, r)
		}
	}
	for _, left := range [][]incoming{plain, keyed} {
		for len(left) > 0 {
			var batch []incoming
			batch, left = cutIncoming(left)
			if failed := s.placeOrSplit(ctx, first, batch, &out); failed != nil && err == nil {
				err = failed
			}
		}
	}
	out.More = err == nil && len(rows) >= limit && out.Placed+out.Duplicates+out.Reused+out.Refused > 0
	return out, err
}

// cutIncoming takes the rows of one transaction from the front.
func cutIncoming(rows []incoming) (batch, left []incoming) {
	var bytes int64
	for i, r := range rows {
		bytes += r.bytes
		if i > 0 && (i >= ownRows || bytes > ownBytes) {
			return rows[:i], rows[i:]
		}
	}
	return rows, nil
}

// placeOrSplit places a batch. Where it fails, since somebody has an idempotency key for long or
// something is wrong with one of the rows, the others go on without it. A row whose queue is
// gone can never be a message and is set aside.
func (s *Store) placeOrSplit(ctx context.Context, first int64, batch []incoming, out *storage.PlaceResult) error {
	err := s.placeSome(ctx, first, batch, out)
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, storage.ErrOutcomeUnknown):
		return err
	case errors.Is(err, storage.ErrUnavailable) && !errors.Is(err, storage.ErrLocked):
		return err
	case len(batch) > 1:
		half := len(batch) / 2
		return errors.Join(s.placeOrSplit(ctx, first, batch[:half], out), s.placeOrSplit(ctx, first, batch[half:], out))
	case errors.Is(err, storage.ErrQueueNotFound):
		return s.write(ctx, "place: refuse", func(c *session) (verdict, error) {
			n, err := c.refuse(ctx, batch[0].id, batch[0].queueID, "the queue is gone")
			out.Refused += n
			return commit, err
		})
	}
	return err
}

// refuse sets a row aside, so that it blocks nothing.
func (c *session) refuse(ctx context.Context, id int64, queueID int32, why string) (int, error) {
	n, err := c.change(ctx, qOwnRefuse, a("id", id), a("why", c.s.engine.Values.Text(why)))
	if err == nil && n > 0 {
		c.s.log.ErrorContext(ctx, "a row of incoming can never become a message and was set aside", "id", id, "queue_id", queueID, "error", why)
	}
	return int(n), err
}

// placeSome places what it can have of some rows. It waits for no ordering key while it holds
// others: those that somebody has are tried again a few times, and left to the next call.
func (s *Store) placeSome(ctx context.Context, first int64, batch []incoming, out *storage.PlaceResult) error {
	for n := 1; ; n++ {
		busy, err := s.placeOnce(ctx, first, batch, out)
		if err != nil || !busy || n == keyTries {
			return err
		}
		pause := time.NewTimer(keyPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil
		}
	}
}

// placeOnce places what it can have of some rows, in one transaction: the ordering keys that
// nobody has are locked, then the rows are looked for once more and taken (D12), then their
// idempotency keys decide what becomes of each. busy says that somebody has an ordering key.
func (s *Store) placeOnce(ctx context.Context, first int64, batch []incoming, out *storage.PlaceResult) (busy bool, err error) {
	var res storage.PlaceResult
	err = s.write(ctx, "place", func(c *session) (verdict, error) {
		res, busy = storage.PlaceResult{}, false
		var names []keyName
		for _, r := range batch {
			if r.orderingKey != "" {
				names = append(names, keyName{queueID: r.queueID, name: r.orderingKey})
			}
		}
		keys, err := c.lockNames(ctx, names, skipTaken)
		if err != nil {
			return rollback, err
		}
		busy = !hasAll(keys, names)
		rows, err := c.takeIncoming(ctx, first, batch, keys)
		if err != nil || len(rows) == 0 {
			return rollback, err
		}
		if err := c.placeRows(ctx, rows, keys, &res); err != nil {
			return rollback, err
		}
		heads, _, err := c.promote(ctx, keys.ids)
		for _, id := range heads {
			res.Ready = addReady(res.Ready, storage.QueueReady{QueueID: id, ReadyTime: res.Now})
		}
		return commit, err
	})
	if err != nil {
		return false, err
	}
	out.Placed += res.Placed
	out.Duplicates += res.Duplicates
	out.Reused += res.Reused
	out.Refused += res.Refused
	if res.Now.After(out.Now) {
		out.Now = res.Now
	}
	for _, r := range res.Ready {
		out.Ready = addReady(out.Ready, r)
	}
	return busy, nil
}

// addReady keeps the earliest ready time of each queue.
func addReady(all []storage.QueueReady, r storage.QueueReady) []storage.QueueReady {
	for i := range all {
		if all[i].QueueID == r.QueueID {
			if r.ReadyTime.Before(all[i].ReadyTime) {
				all[i].ReadyTime = r.ReadyTime
			}
			return all
		}
	}
	return append(all, r)
}

// arrival is a row of incoming that the transaction has taken.
type arrival struct {
	storage.NewMessage

	id         int64
	created    time.Time
	attributes []byte
	// unreadable says why the row cannot be a message; nil where it can.
	unreadable error
}

// takeIncoming takes rows in the order of their ids, those that nobody else is at: of each
// ordering key that is locked all rows up to the last one of the batch, and none behind one
// that somebody else is at; of the others those of the batch.
func (c *session) takeIncoming(ctx context.Context, first int64, batch []incoming, keys lockedKeys) ([]arrival, error) {
	mine := make(map[int64]bool, len(batch))
	for _, r := range batch {
		mine[r.id] = true
	}
	type seen struct {
		id  int64
		key keyName
	}
	var (
		rows []seen
		list []int64
	)
	if batch[0].plain() {
		for _, r := range batch {
			rows = append(rows, seen{id: r.id})
		}
	} else {
		err := c.each(ctx, qOwnKeyed, args(a("from", first), a("last", batch[len(batch)-1].id)), func(r *sql.Rows) error {
			var row seen
			err := r.Scan(&row.id, &row.key.queueID, &row.key.name)
			_, locked := keys.named[row.key]
			if locked && row.key.name != "" || row.key.name == "" && mine[row.id] {
				rows = append(rows, row)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, r := range rows {
		list = append(list, r.id)
	}
	if len(list) == 0 {
		return nil, nil
	}
	taken := make(map[int64]arrival, len(list))
	err := c.each(ctx, qOwnTake, args(c.ids(list)), func(r *sql.Rows) error {
		row, err := scanArrival(r)
		taken[row.id] = row
		return err
	})
	if err != nil {
		return nil, err
	}
	var (
		out     []arrival
		stopped = make(map[keyName]bool)
	)
	for _, r := range rows {
		row, ok := taken[r.id]
		switch {
		case !ok && r.key.name != "":
			stopped[r.key] = true
		case ok && !stopped[r.key]:
			out = append(out, row)
		}
	}
	return out, nil
}

func scanArrival(r *sql.Rows) (arrival, error) {
	var (
		m                 arrival
		delay             sql.NullInt64
		available, expire sql.NullTime
		attributes        sql.NullString
	)
	err := r.Scan(&m.id, &m.QueueID, &m.created, &delay, &available, &expire, &m.Priority, &m.MaxAttempts, &m.IdempotencyKey,
		&m.OrderingKey, &m.WireBytes, &m.ContentType, &attributes, &m.Payload)
	if err != nil {
		return m, err
	}
	m.created, m.AvailableTime, m.ExpireTime = m.created.UTC(), utc(available), utc(expire)
	if delay.Valid {
		// A delay counts from the statement that asked for it.
		m.AvailableTime = m.created.Add(microseconds(delay.Int64))
	}
	if attributes.Valid {
		m.attributes = []byte(attributes.String)
	}
	m.Attributes, m.unreadable = attributesOf(attributes)
	for _, text := range []struct{ column, value string }{
		{"content_type", m.ContentType}, {"idempotency_key", m.IdempotencyKey}, {"ordering_key", m.OrderingKey}, {"attributes", attributes.String},
	} {
		if m.unreadable == nil && !utf8.ValidString(text.value) {
			m.unreadable = fmt.Errorf("%s is not valid UTF-8", text.column)
		}
	}
	m.ContentHash = storage.ContentHash(&m.NewMessage)
	return m, nil
}

// placeRows makes messages of rows that the transaction has taken.
func (c *session) placeRows(ctx context.Context, rows []arrival, keys lockedKeys, res *storage.PlaceResult) error {
	b := &batch{c: c, tries: len(keys.named) > 0}
	var gone []int64
	for _, r := range rows {
		if r.unreadable != nil {
			n, err := c.refuse(ctx, r.id, r.QueueID, r.unreadable.Error())
			if err != nil {
				return err
			}
			res.Refused += n
			continue
		}
		gone = append(gone, r.id)
		b.messages = append(b.messages, r.NewMessage)
		b.attributes = append(b.attributes, r.attributes)
		b.created = append(b.created, r.created)
	}
	if len(gone) == 0 {
		return nil
	}
	if err := b.decide(ctx); err != nil {
		return err
	}
	// Who enqueued is gone and cannot be told of a reused key, so that becomes a message too, at
	// its place among the others, and dies at once (E3).
	var reused []int
	for i, item := range b.items {
		if item.Status == storage.EnqueueKeyReused {
			reused = append(reused, i)
		}
	}
	b.fresh = append(b.fresh, reused...)
	slices.Sort(b.fresh)
	res.Reused = len(reused)
	res.Placed = len(b.fresh) - len(reused)
	res.Duplicates = len(b.messages) - len(b.fresh)
	clear(b.first)
	if err := b.put(ctx, keys.named); err != nil {
		return err
	}
	res.Now = b.now
	var what []burial
	for _, i := range b.fresh {
		if slices.Contains(reused, i) {
			what = append(what, burial{ref: b.items[i].Ref, state: storage.StateDead, reason: storage.DeadReasonKeyReused})
			continue
		}
		res.Ready = addReady(res.Ready, storage.QueueReady{QueueID: b.items[i].Ref.QueueID, ReadyTime: b.items[i].ReadyTime})
	}
	if err := c.buryReused(ctx, b.now, what); err != nil {
		return err
	}
	return c.exactly(ctx, qOwnIncomingDelete, len(gone), c.ids(gone))
}

// buryReused ends messages whose idempotency keys name others. One that is the head of its
// ordering key blocks it as any dead head does (O7).
func (c *session) buryReused(ctx context.Context, now time.Time, what []burial) error {
	if len(what) == 0 {
		return nil
	}
	ids := make([]int64, len(what))
	for i, b := range what {
		ids[i] = idOf(b.ref.Position)
	}
	if err := c.exactly(ctx, qOwnReused, len(ids), c.ids(ids)); err != nil {
		return err
	}
	var heads []died
	err := c.each(ctx, qOwnReusedHeads, args(c.ids(ids)), func(rows *sql.Rows) error {
		var (
			id int64
			d  died
		)
		err := rows.Scan(&id, &d.keyID)
		d.ref = what[slices.Index(ids, id)].ref
		heads = append(heads, d)
		return err
	})
	if err != nil {
		return err
	}
	if err := c.bury(ctx, now, what); err != nil {
		return err
	}
	return c.block(ctx, heads)
}
