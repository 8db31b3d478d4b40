package rowlock

import (
	"fmt"
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

// ownTexts are the files of the statements for transactions of others, in queries/own. Each
// calls a procedure of the layout.
var ownTexts = []storage.TransactionStatement{
	{Name: storage.TransactionEnqueue, Parameters: []string{
		"payload bytes", "content_type text", "attributes text, a JSON object of strings", "idempotency_key text",
		"ordering_key text", "priority integer", "delay_ms integer", "available_time integer, milliseconds since the epoch",
		"max_attempts integer", "expire_time integer, milliseconds since the epoch",
	}},
	{Name: storage.TransactionComplete, Parameters: []string{"message_id text", "claim_token text", "result bytes"}},
	{Name: storage.TransactionRetry, Parameters: []string{
		"message_id text", "claim_token text", "delay_ms integer, null takes the retry policy of the queue", "error text",
	}},
	{Name: storage.TransactionDeadLetter, Parameters: []string{"message_id text", "claim_token text", "reason_code text", "error text"}},
	{Name: storage.TransactionOutcome, Parameters: []string{"message_id text", "claim_token text"}},
}

// TransactionSQL implements storage.Own.
func (s *Store) TransactionSQL(p storage.TransactionSQLParams) (storage.TransactionSQL, error) {
	if p.QueueID <= 0 || p.MaxPayloadBytes < 1 {
		return storage.TransactionSQL{}, fmt.Errorf("%s: transaction sql: queue %d, payload limit %d", s.engine.Name, p.QueueID, p.MaxPayloadBytes)
	}
	of := strings.NewReplacer(
		ownQueueID, strconv.Itoa(int(p.QueueID)),
		ownQueueName, strconv.Itoa(ownLater+len(p.QueueName)),
		ownMaxPayload, strconv.FormatInt(p.MaxPayloadBytes, 10),
		"CALL queuebox_", "CALL "+s.engine.Qualifier+"queuebox_",
	)
	out := storage.TransactionSQL{Version: storage.TransactionContract}
	for _, st := range ownTexts {
		text, err := Text(s.engine, "own/"+st.Name)
		if err != nil {
			return storage.TransactionSQL{}, fmt.Errorf("%s: transaction sql: %w", s.engine.Name, err)
		}
		st.SQL = of.Replace(text)
		out.Statements = append(out.Statements, st)
	}
	return out, nil
}
