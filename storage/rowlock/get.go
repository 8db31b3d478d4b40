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
	qIDsLive            statement = "ids_live"
	qIDsCompleted       statement = "ids_completed"
	qIDsMarked          statement = "ids_marked"
)

// listLooks is how many rows one statement of a list looks at, and listNamed how many it reads by
// their ids.
const (
	listLooks = 5000
	listNamed = 500
)

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
	for _, look := range []struct {
		q    statement
		scan func(rows *sql.Rows) (storage.Message, error)
	}{
		{qMessageLive, c.scanShown},
		{qMessageCompleted, scanFinished},
		{qMessageDead, scanFinished},
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

// kind is one of the tables that messages are in, with the statements that list them: list a
// range of ids that page has found, named those of a list of ids, and ids gives the ids of the
// queue where there is an index that is not in their order.
type kind struct {
	list, named, page, ids statement
	scan                   func(c *session, rows *sql.Rows) (storage.Message, error)
}

// kinds gives those in which messages may be that are meant, in the order in which messages
// move from one to the next.
func kinds(p storage.ListMessagesParams) []kind {
	has := func(states ...storage.State) bool {
		return len(p.States) == 0 || slices.ContainsFunc(p.States, func(s storage.State) bool { return slices.Contains(states, s) })
	}
	finished := func(_ *session, rows *sql.Rows) (storage.Message, error) { return scanFinished(rows) }
	live := kind{qListLive, qListLiveNamed, qPageLive, qIDsLive, (*session).scanShown}
	if !has(storage.StatePending, storage.StateProcessing) || len(p.DeadReasons) > 0 {
		live.page, live.ids = "", qIDsMarked // only the mark of a live message says so (E12)
	}
	all := []kind{live}
	if has(storage.StateCompleted) && len(p.DeadReasons) == 0 {
		all = append(all, kind{qListCompleted, qListCompletedNamed, qPageCompleted, qIDsCompleted, finished})
	}
	if has(storage.StateDead, storage.StateCancelled) {
		all = append(all, kind{list: qListDead, named: qListDeadNamed, page: qPageDead, scan: finished})
	}
	return all
}

// ListMessages implements storage.Admin. A message is in one of three tables. Where the queue
// has few messages in one, they are found by the queue; else the table is walked downwards by
// the id, in statements that look at a bounded number of rows. What is found is merged by
// position, which never changes, so that pages are stable.
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
		for _, k := range kinds(p) {
			some, err := c.listKind(ctx, k, p, filters)
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

// listKind finds the newest messages of a kind that are meant, one more than a page has.
func (c *session) listKind(ctx context.Context, k kind, p storage.ListMessagesParams, filters []Arg) ([]storage.Message, error) {
	var ids []int64
	if len(p.Positions) > 0 {
		for _, position := range p.Positions {
			if position > 0 {
				ids = append(ids, idOf(position))
			}
		}
		return c.listNamed(ctx, k, p, filters, ids)
	}
	if k.ids != "" {
		err := c.each(ctx, k.ids, args(a("queue_id", p.QueueID), a("limit", int64(listLooks+1))), func(rows *sql.Rows) error {
			var id int64
			err := rows.Scan(&id)
			ids = append(ids, id)
			return err
		})
		if err != nil || len(ids) <= listLooks || k.page == "" {
			return c.listNamed(ctx, k, p, filters, ids)
		}
	}
	return c.listPages(ctx, k, p, filters)
}

// listNamed reads those of the messages that are of a kind and are meant, the newest first.
func (c *session) listNamed(ctx context.Context, k kind, p storage.ListMessagesParams, filters []Arg, ids []int64) ([]storage.Message, error) {
	// The two positions that an id may stand for are one message.
	slices.Sort(ids)
	ids = slices.Compact(ids)
	slices.Reverse(ids)
	var found []storage.Message
	for some := range slices.Chunk(ids, listNamed) {
		if some[len(some)-1] > idOf(p.Before) {
			continue
		}
		by := append(args(c.ids(some), a("payload", p.Payload)), filters...)
		err := c.each(ctx, k.named, by, func(rows *sql.Rows) error {
			m, err := k.scan(c, rows)
			named := len(p.Positions) == 0 || slices.Contains(p.Positions, m.Ref.Position)
			if m.Ref.Position < p.Before && named {
				found = append(found, m)
			}
			return err
		})
		if err != nil || len(found) > p.Limit {
			return mergeNewest(nil, found), err
		}
	}
	return mergeNewest(nil, found), nil
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
	all = append(slices.Clip(more), all...)
	slices.SortStableFunc(all, func(a, b storage.Message) int { return cmp.Compare(b.Ref.Position, a.Ref.Position) })
	return slices.CompactFunc(all, func(a, b storage.Message) bool { return a.Ref == b.Ref })
}
