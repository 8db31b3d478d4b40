package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

// incoming is a row that waits to be placed.
type incoming struct {
	ownRow

	queueID     int32
	orderingKey string
	idempotent  bool
	bytes       int64
}

func (r incoming) plain() bool { return r.orderingKey == "" && !r.idempotent }

// name is its ordering key.
func (r incoming) name() namedKey { return namedKey{queueID: r.queueID, name: r.orderingKey} }

// placing is one call of Place.
type placing struct {
	store *Store
	out   *storage.PlaceResult
	place func(context.Context, []incoming, *storage.PlaceResult) error
	// left are the ordering keys of rows that could not be placed: what comes behind one of them
	// in its key waits with it for the next call, and so keeps its order (O5).
	left map[namedKey]bool
}

// Place implements storage.Own: one look, then small transactions. A row that the database
// refuses fails its transaction; those that stood in it are tried one by one, so that it
// blocks nobody, and it is set aside.
func (s *Store) Place(ctx context.Context, p storage.PlaceParams) (storage.PlaceResult, error) {
	rows, out, err := s.incoming(ctx, int64(max(p.Limit, 1)))
	if err != nil {
		s.incomingBound.forget()
		return out, err
	}
	var plain, keyed []incoming
	for _, r := range rows {
		if r.plain() {
			plain = append(plain, r)
		} else {
			keyed = append(keyed, r)
		}
	}
	var first error
	for _, lane := range []struct {
		rows  []incoming
		place func(context.Context, []incoming, *storage.PlaceResult) error
	}{{plain, s.placePlain}, {keyed, s.placeKeyed}} {
		p := placing{store: s, out: &out, place: lane.place, left: map[namedKey]bool{}}
		for left := lane.rows; len(left) > 0; {
			var batch []incoming
			batch, left = cutBytes(left)
			if err := p.orRefuse(ctx, batch); err != nil && first == nil {
				first = err
			}
		}
	}
	out.More = first == nil && len(rows) >= max(p.Limit, 1) && out.Placed+out.Duplicates+out.Reused+out.Refused > 0
	return out, first
}

// cutBytes takes the rows of one transaction from the front.
func cutBytes(rows []incoming) (batch, left []incoming) {
	var bytes int64
	for i, r := range rows {
		bytes += r.bytes
		if i > 0 && (i >= ownRows || bytes > ownBytes) {
			return rows[:i], rows[i:]
		}
	}
	return rows, nil
}

// incoming looks for what committed transactions have enqueued.
func (s *Store) incoming(ctx context.Context, limit int64) (rows []incoming, out storage.PlaceResult, err error) {
	var bound string
	err = s.read(ctx, "place: look", step{
		sql: s.sql.own.incoming, args: []any{s.incomingBound.from(), limit},
		scan: each(func() { rows = rows[:0] }, func(r pgx.Rows) error {
			var (
				xid, key   *string
				seq, bytes *int64
				queueID    *int32
				idempotent *bool
			)
			if err := r.Scan(&out.Now, &bound, &xid, &seq, &queueID, &key, &idempotent, &bytes); err != nil {
				return err
			}
			if xid != nil {
				rows = append(rows, incoming{
					ownRow: ownRow{xid: *xid, seq: *seq}, queueID: *queueID, orderingKey: text(key), idempotent: is(idempotent), bytes: *bytes,
				})
			}
			return nil
		}),
	})
	if err == nil {
		s.incomingBound.set(bound)
	}
	out.Now = out.Now.UTC()
	return rows, out, err
}

// orRefuse places a batch, or each of its rows for itself where one of them is poison.
func (p *placing) orRefuse(ctx context.Context, batch []incoming) error {
	batch = slices.DeleteFunc(slices.Clone(batch), func(r incoming) bool { return p.left[r.name()] })
	if len(batch) == 0 {
		return nil
	}
	err := p.place(ctx, batch, p.out)
	if err == nil {
		return nil
	}
	if hasCode(err, codeLockNotAvailable) && len(batch) > 1 {
		// Somebody has a key of one of them for long: the others go on without it.
		half := len(batch) / 2
		return errors.Join(p.orRefuse(ctx, batch[:half]), p.orRefuse(ctx, batch[half:]))
	}
	if !poison(err) {
		p.leave(batch)
		return err
	}
	if len(batch) > 1 {
		for i := range batch {
			if err := p.orRefuse(ctx, batch[i:i+1]); err != nil {
				p.leave(batch[i:])
				return err
			}
		}
		return nil
	}
	s, why := p.store, code(err)
	if err := s.write(ctx, "place: refuse", step{sql: s.sql.own.refuse, args: []any{batch[0].xid, batch[0].seq, why}}); err != nil {
		p.leave(batch)
		return err
	}
	s.log.ErrorContext(ctx, "a row of queuebox.incoming can never become a message and was set aside",
		"xid", batch[0].xid, "seq", batch[0].seq, "queue_id", batch[0].queueID, "error", err)
	p.out.Refused++
	return nil
}

// leave notes that rows were not placed.
func (p *placing) leave(rows []incoming) {
	for _, r := range rows {
		if r.orderingKey != "" {
			p.left[r.name()] = true
		}
	}
}

// poison tells whether the values of a row are what failed.
func poison(err error) bool {
	if errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrOutcomeUnknown) {
		return false
	}
	c := code(err)
	return c != "" && (c[:2] == classData || c[:2] == classIntegrity) && !keyVanished(err)
}

// placePlain places rows without any key in one statement.
func (s *Store) placePlain(ctx context.Context, batch []incoming, out *storage.PlaceResult) error {
	xids, seqs := namesOf(batch, func(r incoming) ownRow { return r.ownRow })
	var (
		now    time.Time
		placed int64
		ready  []storage.QueueReady
	)
	err := s.write(ctx, "place", step{sql: s.sql.own.place, args: []any{xids, seqs}, scan: each(
		func() { placed, ready = 0, nil },
		func(r pgx.Rows) error {
			var (
				queueID *int32
				at      *time.Time
				n       *int64
			)
			if err := r.Scan(&now, &queueID, &at, &n); err != nil {
				return err
			}
			if queueID != nil {
				placed += *n
				ready = append(ready, storage.QueueReady{QueueID: *queueID, ReadyTime: at.UTC()})
			}
			return nil
		},
	)})
	if err != nil {
		return err
	}
	out.Now = now.UTC()
	out.Placed += int(placed)
	for _, r := range ready {
		out.Ready = earliest(out.Ready, r)
	}
	return nil
}
