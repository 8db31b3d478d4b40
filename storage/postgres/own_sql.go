package postgres

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/queuebox/queuebox/storage"
)

// What the texts of the own transaction say in place of the values of a queue, so that a
// file can be pasted as it is.
const (
	ownQueueID    = "0 /* queue_id */"
	ownQueueName  = "3277 /* queue_name */"
	ownMaxPayload = "1048576 /* max_payload_bytes */"
	// ownLater is what attempts can add to a message in an answer of Claim, beside the name
	// of its queue: see the wire bytes of an Enqueue.
	ownLater = 2000 + 2*255 + 512
)

// ownStatements are those of the own transaction: what a server runs for it, and what others
// run in theirs.
type ownStatements struct {
	incoming, place, take, insert, refuse, marked, markedTake, finish string
	enqueue, complete, retry, deadLetter, mark, outcome, notify       string
}

// fields adds the statements to those of the hot path, by the names of their files.
func (o *ownStatements) fields(all map[string]*string) map[string]*string {
	maps.Copy(all, map[string]*string{
		"own_incoming": &o.incoming, "own_place": &o.place, "own_take": &o.take, "own_insert": &o.insert, "own_refuse": &o.refuse,
		"own_marked": &o.marked, "own_marked_take": &o.markedTake, "own_finish": &o.finish,
		"own_enqueue": &o.enqueue, "own_complete": &o.complete, "own_retry": &o.retry, "own_dead_letter": &o.deadLetter,
		"own_mark": &o.mark, "own_outcome": &o.outcome, "own_notify": &o.notify,
	})
	return all
}

// TransactionSQL implements storage.Own.
func (s *Store) TransactionSQL(p storage.TransactionSQLParams) (storage.TransactionSQL, error) {
	if p.QueueID <= 0 || p.MaxPayloadBytes < 1 {
		return storage.TransactionSQL{}, fmt.Errorf("postgres: transaction sql: queue %d, payload limit %d", p.QueueID, p.MaxPayloadBytes)
	}
	of := strings.NewReplacer(
		ownQueueID, strconv.Itoa(int(p.QueueID)),
		ownQueueName, strconv.Itoa(ownLater+len(p.QueueName)),
		ownMaxPayload, strconv.FormatInt(p.MaxPayloadBytes, 10),
	)
	out := storage.TransactionSQL{Version: storage.TransactionContract}
	for _, st := range []storage.TransactionStatement{
		{Name: storage.TransactionEnqueue, SQL: s.sql.own.enqueue, Parameters: []string{
			"payload bytea", "content_type text", "attributes text, a JSON object of strings", "idempotency_key text",
			"ordering_key text", "priority integer", "delay_ms bigint", "available_time timestamptz", "max_attempts integer",
			"expire_time timestamptz",
		}},
		{
			Name: storage.TransactionComplete, SQL: s.sql.own.complete + "\n" + s.sql.own.mark,
			Parameters: []string{"message_id text", "claim_token text", "result bytea"},
		},
		{
			Name: storage.TransactionRetry, SQL: s.sql.own.retry + "\n" + s.sql.own.mark,
			Parameters: []string{"message_id text", "claim_token text", "delay_ms bigint, null takes the retry policy of the queue", "error text"},
		},
		{
			Name: storage.TransactionDeadLetter, SQL: s.sql.own.deadLetter + "\n" + s.sql.own.mark,
			Parameters: []string{"message_id text", "claim_token text", "reason_code text", "error text"},
		},
		{
			Name: storage.TransactionOutcome, SQL: s.sql.own.outcome,
			Parameters: []string{"message_id text", "claim_token text"},
		},
		{Name: storage.TransactionNotify, SQL: s.sql.own.notify},
	} {
		st.SQL = of.Replace(st.SQL)
		out.Statements = append(out.Statements, st)
	}
	return out, nil
}
