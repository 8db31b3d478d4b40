package rowlock

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"

	"github.com/queuebox/queuebox/storage"
)

const (
	qMessageLive      statement = "message_live"
	qMessageCompleted statement = "message_completed"
	qMessageDead      statement = "message_dead"

	qListLive           statement = "list_live"
	qListLiveNamed      statement = "list_live_named"
	qListCompleted      statement = "list_completed"
	qListCompletedNamed statement = "list_completed_named"
	qListDead           statement = "list_dead"
	qListDeadNamed      statement = "list_dead_named"
	qPageLive           statement = "page_live"
	qPageCompleted      statement = "page_completed"
	qPageDead           statement = "page_dead"
)

// listLooks is how many rows one statement of a list looks at.
const listLooks = 5000

// GetMessage implements storage.Admin.
func (s *Store) GetMessage(ctx context.Context, ref storage.Ref, payload bool) (storage.Message, error) {
	var m storage.Message
	err := s.read(ctx, "get message", func(c *session) (err error) {
		m, err = c.message(ctx, ref, payload)
		return err
	})
	if err != nil {
		return storage.Message{}, err
	}
	return m, nil
}

// message reads a message, live or finished and kept; ErrMessageNotFound where there is none. A
// message moves between the tables, from the live ones and back again (O7), so the live ones
// are asked once more at the end.
func (c *session) message(ctx context.Context, ref storage.Ref, payload bool) (storage.Message, error) {
	by := args(a("id", idOf(ref.Position)), a("queue_id", ref.QueueID), a("payload", payload))
	finished := func(rows *sql.Rows) (storage.Message, error) { return scanFinished(rows) }
	for _, look := range []struct {
		q    statement
		scan func(rows *sql.Rows) (storage.Message, error)
	}{
		{qMessageLive, c.scanShown},
		{qMessageCompleted, finished},
		{qMessageDead, finished},
		{qMessageLive, c.scanShown},
	} {
		var m storage.Message
		err := c.each(ctx, look.q, by, func(rows *sql.Rows) (err error) {
			m, err = look.scan(rows)
			return err
		})
		if err != nil {
			return m, err
		}
		// The last bit of a position is part of it, and no part of the id.
		if m.Ref == ref && ref.Position > 0 {
			return withPayload(m, payload), nil
		}
	}
	return storage.Message{}, storage.ErrMessageNotFound
}

// kind is one of the tables that messages are in, with the statements that list them.
type kind struct {
	list, named, page statement
	scan              func(c *session, rows *sql.Rows) (storage.Message, error)
}

// kinds gives them in the order in which messages move from one to the next.
func kinds() []kind {
	finished := func(_ *session, rows *sql.Rows) (storage.Message, error) { return scanFinished(rows) }
	return []kind{
		{qListLive, qListLiveNamed, qPageLive, (*session).scanShown},
		{qListCompleted, qListCompletedNamed, qPageCompleted, finished},
		{qListDead, qListDeadNamed, qPageDead, finished},
	}
}

// ListMessages implements storage.Admin. A message is in one of three tables; each is walked
// downwards by the id, in statements that look at a bounded number of rows, and what they give
// is merged by position, which never changes, so that pages are stable.
func (s *Store) ListMessages(ctx context.Context, p storage.ListMessagesParams) (storage.ListMessagesResult, error) {
	p.Limit = max(p.Limit, 1)
	if p.Before <= 0 {
		p.Before = math.MaxInt64
	}
	filters, err := filterArgs(s.engine.Values, p)
	if err != nil {
		return storage.ListMessagesResult{}, fmt.Errorf("%s: list messages: %w", s.engine.Name, err)
	}
	var all []storage.Message
	err = s.read(ctx, "list messages", func(c *session) error {
		all = nil
		for _, k := range kinds() {
			var some []storage.Message
			var err error
			if len(p.Positions) > 0 {
				some, err = c.listNamed(ctx, k, p, filters)
			} else {
				some, err = c.listPages(ctx, k, p, filters)
			}
			if err != nil {
				return err
			}
			all = mergeNewest(all, some)
		}
		return nil
	})
	if err != nil {
		return storage.ListMessagesResult{}, err
	}
	var res storage.ListMessagesResult
	if len(all) > p.Limit {
		all = all[:p.Limit]
		res.Next = all[p.Limit-1].Ref.Position
	}
	for i := range all {
		all[i] = withPayload(all[i], p.Payload)
	}
	res.Messages = all
	return res, nil
}

// listNamed reads those of the named messages that are of a kind and are meant.
func (c *session) listNamed(ctx context.Context, k kind, p storage.ListMessagesParams, filters []Arg) ([]storage.Message, error) {
	named := make(map[int64]bool, len(p.Positions))
	var ids []int64
	for _, position := range p.Positions {
		if position > 0 && position < p.Before && !named[position] {
			named[position] = true
			ids = append(ids, idOf(position))
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	slices.Sort(ids)
	// The two positions of an id are one message, which the list must not give twice.
	by := append(args(c.ids(slices.Compact(ids)), a("payload", p.Payload)), filters...)
	var found []storage.Message
	err := c.each(ctx, k.named, by, func(rows *sql.Rows) error {
		m, err := k.scan(c, rows)
		if err == nil && named[m.Ref.Position] {
			found = append(found, m)
		}
		return err
	})
	return found, err
}

// listPages walks over a table from Before downwards, until one message more than the page has
// was found or the end was reached.
func (c *session) listPages(ctx context.Context, k kind, p storage.ListMessagesParams, filters []Arg) ([]storage.Message, error) {
	var found []storage.Message
	add := func(rows *sql.Rows) error {
		m, err := k.scan(c, rows)
		if m.Ref.Position < p.Before {
			found = append(found, m)
		}
		return err
	}
	for last := idOf(p.Before); last > 0 && len(found) <= p.Limit; {
		var first int64
		err := c.each(ctx, k.page, args(a("queue_id", p.QueueID), a("last", last), a("rows", int64(listLooks-1))), func(rows *sql.Rows) error {
			return rows.Scan(&first)
		})
		if err != nil {
			return nil, err
		}
		// Two more than are missing: one tells that there is a next page, and one may be the
		// message at Before itself.
		by := append(args(a("first", first), a("last", last), a("limit", int64(p.Limit+2-len(found))), a("payload", p.Payload)), filters...)
		if err := c.each(ctx, k.list, by, add); err != nil {
			return nil, err
		}
		if first == 0 {
			break
		}
		last = first - 1
	}
	return found, nil
}

// mergeNewest merges messages of another kind into a list, newest first. One that is in both
// has moved in between, and is as the second list has it.
func mergeNewest(all, more []storage.Message) []storage.Message {
	all = append(more, all...)
	slices.SortStableFunc(all, func(a, b storage.Message) int { return cmp.Compare(b.Ref.Position, a.Ref.Position) })
	return slices.CompactFunc(all, func(a, b storage.Message) bool { return a.Ref == b.Ref })
}
