package mssql

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mssqldb "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mssql/internal/faketds"
	"github.com/queuebox/queuebox/storage/rowlock"
)

// exchange is a fake that knows the statements by their names, and notes in which order they
// come and how their parameters are declared.
type exchange struct {
	names   map[string]string // text -> name
	answers map[string]func(r faketds.Request) faketds.Answer

	mu   sync.Mutex
	said []string
	last map[string]faketds.Request
}

var fakeNow = time.Date(2031, 2, 3, 4, 5, 6, 789123000, time.UTC)

// play opens a store on a fake that answers by the names of statements: a change with the number
// of the rows of its list, where nothing else is said, and everything else with no rows.
func play(t *testing.T, answers map[string]func(r faketds.Request) faketds.Answer) (*rowlock.Store, *exchange) {
	t.Helper()
	x := &exchange{names: map[string]string{}, answers: answers, last: map[string]faketds.Request{}}
	e := engine(Config{})
	files, err := queries.ReadDir("queries")
	require.NoError(t, err)
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".sql")
		if !ok {
			continue
		}
		text, err := rowlock.Text(e, name)
		require.NoError(t, err)
		x.names[settings+text] = name
	}
	store, s := open(t, x.answer)
	// Rows that are closed before their end cancel their statement, and with XACT_ABORT perhaps
	// the transaction.
	t.Cleanup(func() { require.Zero(t, s.Attentions(), "all rows are read to their end") })
	return store, x
}

func (x *exchange) answer(r faketds.Request) faketds.Answer {
	name := string(r.Kind)
	if r.Kind == faketds.RPC {
		name = r.Procedure
		if r.Procedure == procedure {
			name = x.names[r.Text]
		}
	}
	if r.Kind == faketds.Login {
		return faketds.Answer{}
	}
	line := name
	if r.Declared != "" {
		line += ": " + r.Declared
	}
	// The answers are made under the lock too, so that they may keep something in mind.
	x.mu.Lock()
	defer x.mu.Unlock()
	x.said = append(x.said, line)
	x.last[name] = r
	if fn := x.answers[name]; fn != nil {
		return fn(r)
	}
	if strings.HasSuffix(r.Text, "SELECT @@ROWCOUNT AS changed;") {
		n := 1
		if _, ok := r.Param("list"); ok {
			n = len(list(r, "list"))
		}
		return rows([]string{"changed"}, []any{int32(n)})
	}
	return faketds.Answer{}
}

// on sets another answer.
func (x *exchange) on(name string, fn func(r faketds.Request) faketds.Answer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answers[name] = fn
}

// sent gives the last request for a statement.
func (x *exchange) sent(name string) faketds.Request {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last[name]
}

// heard gives what was said since the last time.
func (x *exchange) heard() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := x.said
	x.said = nil
	return out
}

// list reads a list that a statement was given.
func list(r faketds.Request, name string) [][]any {
	p, _ := r.Param(name)
	text, ok := p.Value.(string)
	if !ok {
		panic(r.Procedure + " has no list " + name)
	}
	var out [][]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		panic(err)
	}
	return out
}

// guid is a token that stands in a list, as it would stand in a row.
func guid(text any) faketds.GUID {
	var id mssqldb.UniqueIdentifier
	if err := id.Scan(text); err != nil {
		panic(err)
	}
	raw, err := id.Value()
	if err != nil {
		panic(err)
	}
	return faketds.GUID(raw.([]byte)) //nolint:forcetypeassert // That is what it gives.
}

func always(a faketds.Answer) func(faketds.Request) faketds.Answer {
	return func(faketds.Request) faketds.Answer { return a }
}

// messageRow is message_columns and the payload.
func messageRow(id int64, key any, token faketds.GUID, payload string) []any {
	return []any{
		id, int32(7), key, token, int32(1), nil, int64(-5), int32(1), int32(3), int32(len(payload)),
		[]byte{},
		"text/plain", nil,
		[]byte("k "), fakeNow, fakeNow, nil, fakeNow.Add(30 * time.Second), nil, "", "me", []byte(payload),
	}
}

var messageColumns = strings.Fields(`id queue_id key_id token state outcome urgency attempt max_attempts payload_bytes
	idempotency_key content_type attributes ordering_key create_time ready_time expire_time lease_end last_error reason_code
	worker_id payload`)

func claimAnswers() map[string]func(r faketds.Request) faketds.Answer {
	var mu sync.Mutex
	var leased [][]any
	return map[string]func(r faketds.Request) faketds.Answer{
		"claim_look": always(rows([]string{"now", "paused", "max_in_flight", "max_claims_per_second", "next_ready", "urgency", "ready_time", "known"},
			[]any{fakeNow, false, int32(0), 0.0, nil, int64(-5), fakeNow, int32(0)})),
		"claim_lock": always(rows([]string{"id", "urgency", "ready_time", "payload_bytes", "wire_bytes", "claimable"},
			[]any{int64(11), int64(-5), fakeNow, int32(1), int64(1), true}, []any{int64(10), int64(-5), fakeNow, int32(1), int64(1), true})),
		"claim_lease": func(r faketds.Request) faketds.Answer {
			mu.Lock()
			defer mu.Unlock()
			leased = list(r, "list")
			return rows([]string{"changed"}, []any{int32(len(leased))})
		},
		// The rows come in another order than they were asked for.
		"claim_taken": func(faketds.Request) faketds.Answer {
			mu.Lock()
			defer mu.Unlock()
			var out [][]any
			for _, row := range slices.Backward(leased) {
				id := int64(row[0].(float64)) //nolint:forcetypeassert // A number of JSON.
				out = append(out, messageRow(id, nil, guid(row[1]), "p"))
			}
			return rows(messageColumns, out...)
		},
	}
}

const (
	declaredLook  = "claim_look: @claim_ids nvarchar(max), @queue_id int, @urgency bigint, @last_urgency bigint, @ready_time datetime2(6)"
	declaredLock  = "claim_lock: @limit bigint, @queue_id int, @urgency bigint, @last_urgency bigint, @ready_time datetime2(6)"
	declaredLease = "claim_lease: @list nvarchar(max), @queue_id int"
	declaredTaken = "claim_taken: @list nvarchar(max)"
)

// TestClaim_OnTheWire: a look without a transaction, and where there is something a transaction
// that first takes the lock of the queue's claims. C11, C1.
func TestClaim_OnTheWire(t *testing.T) {
	store, x := play(t, claimAnswers())
	res, err := store.Claim(t.Context(), storage.ClaimParams{
		QueueID: 7, Calls: []storage.ClaimCall{{Max: 1, Lease: 30 * time.Second, WorkerID: "me"}, {Max: 5, Lease: time.Minute, WorkerID: "you"}},
	})
	require.NoError(t, err)
	require.Len(t, res.Calls[0].Messages, 1)
	require.Len(t, res.Calls[1].Messages, 1)
	require.Equal(t, storage.Ref{QueueID: 7, Position: 20}, res.Calls[0].Messages[0].Message.Ref, "in the order of a claim, whatever that of the rows")
	require.Equal(t, storage.Ref{QueueID: 7, Position: 22}, res.Calls[1].Messages[0].Message.Ref)
	require.Equal(t, []string{declaredLook, "begin", "sys.sp_getapplock", declaredLock, declaredLease, declaredTaken, "commit"}, x.heard())
	leased := list(x.sent("claim_lease"), "list")
	require.Equal(t, []any{10.0, 30e6, "me"}, []any{leased[0][0], leased[0][2], leased[0][3]})
	require.Equal(t, []any{11.0, 60e6, "you"}, []any{leased[1][0], leased[1][2], leased[1][3]})
	require.Equal(t, values{}.TokenText(res.Calls[0].Messages[0].Token), leased[0][1], "the token that was sent is the one that was read")
	require.Equal(t, values{}.TokenText(res.Calls[1].Messages[0].Token), leased[1][1])

	// Nothing to do: one statement, and no transaction.
	x.on("claim_look", always(rows([]string{"now", "paused", "max_in_flight", "max_claims_per_second", "next_ready", "urgency", "ready_time", "known"},
		[]any{fakeNow, false, int32(0), 0.0, fakeNow.Add(time.Second), nil, nil, int32(0)})))
	res, err = store.Claim(t.Context(), storage.ClaimParams{QueueID: 7, Calls: []storage.ClaimCall{{Max: 1, Lease: time.Second, WorkerID: "me"}}})
	require.NoError(t, err)
	require.Equal(t, fakeNow.Add(time.Second), res.NextReady)
	require.Equal(t, []string{declaredLook}, x.heard())
}

// A claim id adds a row, with the claims in it.
func TestC14_ClaimIDOnTheWire(t *testing.T) {
	store, x := play(t, claimAnswers())
	id := storage.ClaimID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	_, err := store.Claim(t.Context(), storage.ClaimParams{
		QueueID: 7, Calls: []storage.ClaimCall{{Max: 2, Lease: 30 * time.Second, WorkerID: "me", ClaimID: id}},
	})
	require.NoError(t, err)
	require.Equal(t, []string{
		declaredLook, "begin", "sys.sp_getapplock", "claim_call_add: @queue_id int, @list nvarchar(max)",
		declaredLock, declaredLease, declaredTaken, "claim_call_held: @list nvarchar(max), @queue_id int", "commit",
	}, x.heard())
	require.Equal(t, [][]any{{"00010203-0405-0607-0809-0A0B0C0D0E0F"}}, list(x.sent("claim_look"), "claim_ids"))
	require.Equal(t, [][]any{{"00010203-0405-0607-0809-0A0B0C0D0E0F", "me"}}, list(x.sent("claim_call_add"), "list"))
	call := list(x.sent("claim_call_held"), "list")[0]
	require.Equal(t, "00010203-0405-0607-0809-0A0B0C0D0E0F", call[0])
	held, err := base64.StdEncoding.DecodeString(call[1].(string)) //nolint:forcetypeassert // A text of JSON.
	require.NoError(t, err)
	require.Len(t, held, 2*(8+16))
}

// A lock of the queue's claims that is busy is no error of the database, and the victim of a
// deadlock over it starts again.
func TestClaim_TheLockIsBusy(t *testing.T) {
	answers := claimAnswers()
	answers["sys.sp_getapplock"] = always(faketds.Answer{Return: lockBusy})
	store, x := play(t, answers)
	claim := storage.ClaimParams{QueueID: 7, Calls: []storage.ClaimCall{{Max: 2, Lease: time.Second, WorkerID: "me"}}}
	_, err := store.Claim(t.Context(), claim)
	require.ErrorIs(t, err, storage.ErrLocked)
	require.Equal(t, []string{declaredLook, "begin", "sys.sp_getapplock", "rollback"}, x.heard())

	victim := once(1, func(faketds.Request) bool { return true }, faketds.Answer{Return: lockVictim})
	x.on("sys.sp_getapplock", func(r faketds.Request) faketds.Answer {
		if a := victim(r); a.Return != 0 {
			return a
		}
		return faketds.Answer{}
	})
	res, err := store.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.Len(t, res.Calls[0].Messages, 2)
	require.Equal(t, []string{
		declaredLook, "begin", "sys.sp_getapplock", "rollback",
		"begin", "sys.sp_getapplock", declaredLock, declaredLease, declaredTaken, "commit",
	}, x.heard())
}

func TestRenew_OnTheWire(t *testing.T) {
	token := storage.Token{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	store, x := play(t, map[string]func(r faketds.Request) faketds.Answer{
		"held_lock": always(rows([]string{"ord", "lease_end"}, []any{int32(0), fakeNow})),
		"renewed": always(rows([]string{"now", "ord", "lease_end", "cancel_requested"},
			[]any{fakeNow, int32(0), fakeNow.Add(time.Minute), true})),
	})
	res, err := store.Renew(t.Context(), storage.RenewParams{Items: []storage.Renewal{
		{Ref: storage.Ref{QueueID: 7, Position: 20}, Token: token, Lease: time.Minute},
	}})
	require.NoError(t, err)
	require.Equal(t, []storage.Renewed{{Status: storage.ItemApplied, LeaseEnd: fakeNow.Add(time.Minute), CancelRequested: true}}, res.Items)
	require.Equal(t, []string{
		"begin", "held_lock: @list nvarchar(max)", "renew: @list nvarchar(max)", "renewed: @list nvarchar(max)", "commit",
	}, x.heard(), "the lock is had by an earlier statement than the one that judges the lease (S13)")
	require.Equal(t, [][]any{{0.0, 7.0, 10.0, "00010203-0405-0607-0809-0A0B0C0D0E0F"}}, list(x.sent("held_lock"), "list"))
}

func TestEnqueue_OnTheWire(t *testing.T) {
	store, x := play(t, map[string]func(r faketds.Request) faketds.Answer{
		"enqueue_queues": always(rows([]string{"now", "queue_id", "max_attempts"}, []any{fakeNow, int32(7), int32(3)})),
		// OUTPUT gives the ids in any order.
		"message_insert": always(rows([]string{"id"}, []any{int64(12)}, []any{int64(10)}, []any{int64(11)})),
	})
	res, err := store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{
		{QueueID: 7, Payload: []byte("one"), ContentType: "text/plain", Priority: 5},
		{QueueID: 7, Payload: []byte{}, Attributes: map[string]string{"ä": "𝄞"}, Delay: time.Second},
		{QueueID: 7, Payload: []byte{0, 0xff}, ExpireTime: fakeNow.Add(time.Hour)},
	}})
	require.NoError(t, err)
	for i, position := range []int64{20, 22, 24} {
		require.Equal(t, storage.Ref{QueueID: 7, Position: position}, res.Items[i].Ref)
	}
	require.Equal(t, []string{
		"enqueue_queues: @list nvarchar(max)", "message_insert: @payloads varbinary(max), @list nvarchar(max)",
	}, x.heard(), "one INSERT is its own transaction")
	insert := x.sent("message_insert")
	require.Equal(t, [][]any{
		{0.0, 7.0, 0.0, -5.0, "2031-02-03T04:05:06.789123", "2031-02-03T04:05:06.789123", nil, nil, 3.0, 1.0, 3.0, 3.0, "text/plain", "", nil},
		{1.0, 7.0, 1.0, 0.0, "2031-02-03T04:05:07.789123", "2031-02-03T04:05:06.789123", nil, nil, 3.0, 4.0, 0.0, 0.0, "", "", `{"ä":"𝄞"}`},
		{2.0, 7.0, 0.0, 0.0, "2031-02-03T04:05:06.789123", "2031-02-03T04:05:06.789123", "2031-02-03T05:05:06.789123", nil, 3.0, 4.0, 2.0, 2.0, "", "", nil},
	}, list(insert, "list"))
	payloads, _ := insert.Param("payloads")
	require.Equal(t, faketds.Param{Name: "payloads", Type: "varbinary(5)", Value: []byte("one\x00\xff")}, payloads)
}

// An INSERT that is its own transaction ends as a commit does: unknown where no answer came (D8),
// and run again where the answer proves that nothing is left (D2).
func TestEnqueue_TheEndOfAStatementThatCommits(t *testing.T) {
	answers := map[string]func(r faketds.Request) faketds.Answer{
		"enqueue_queues": always(rows([]string{"now", "queue_id", "max_attempts"}, []any{fakeNow, int32(7), int32(3)})),
	}
	store, x := play(t, answers)
	p := storage.EnqueueParams{Messages: []storage.NewMessage{{QueueID: 7, Payload: []byte("one")}}}
	for name, c := range map[string]struct {
		first faketds.Answer
		want  error
		tries int
	}{
		"dropped":   {faketds.Answer{Drop: true}, storage.ErrOutcomeUnknown, 1},
		"a victim":  {failing(errDeadlock, "deadlock"), nil, 2},
		"no lock":   {failing(errLockTimeout, "time out"), storage.ErrLocked, 1},
		"read-only": {failing(errReadOnly, "read-only"), storage.ErrUnavailable, 1},
		// A result that begins and is not ended is none.
		"in the middle": {faketds.Answer{
			Sets: []faketds.Set{faketds.Rows([]string{"id"}, []any{int64(10)})}, Error: faketds.Error{Number: errDeadlock, Message: "deadlock"},
		}, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			x.heard()
			tries := 0
			x.on("message_insert", func(faketds.Request) faketds.Answer {
				if tries++; tries == 1 {
					return c.first
				}
				return rows([]string{"id"}, []any{int64(12)})
			})
			res, err := store.Enqueue(t.Context(), p)
			require.ErrorIs(t, err, c.want)
			if c.want == nil {
				require.NoError(t, err)
				require.Equal(t, storage.Ref{QueueID: 7, Position: 24}, res.Items[0].Ref)
			}
			x.heard() // after which nothing is answered any more
			require.Equal(t, c.tries, tries)
		})
	}
}

const declaredList = ": @list nvarchar(max)"

// Keys are locked before idempotency keys, and both before a message (D12); names are bytes.
func TestEnqueue_WithKeysOnTheWire(t *testing.T) {
	made := false
	store, x := play(t, map[string]func(r faketds.Request) faketds.Answer{
		"enqueue_queues": always(rows([]string{"now", "queue_id", "max_attempts"}, []any{fakeNow, int32(7), int32(3)})),
		"key_ids": func(faketds.Request) faketds.Answer {
			if !made {
				made = true
				return faketds.Answer{}
			}
			return rows([]string{"key_id", "queue_id", "name"}, []any{int64(5), int32(7), []byte("k ")})
		},
		"key_lock":       always(rows([]string{"key_id"}, []any{int64(5)})),
		"enqueue_keys":   always(rows([]string{"key_id", "behind"}, []any{int64(5), false})),
		"message_insert": always(rows([]string{"id"}, []any{int64(10)})),
	})
	res, err := store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{
		{QueueID: 7, Payload: []byte("one"), OrderingKey: "k ", IdempotencyKey: "ä ", ContentHash: [32]byte{1}},
	}})
	require.NoError(t, err)
	require.Equal(t, storage.Ref{QueueID: 7, Position: 21}, res.Items[0].Ref)
	require.Equal(t, []string{
		"begin", "key_ids" + declaredList, "key_add" + declaredList, "key_ids" + declaredList, "key_lock" + declaredList,
		"idempotency_try" + declaredList, "enqueue_queues" + declaredList, "enqueue_keys" + declaredList,
		"message_insert: @payloads varbinary(max), @list nvarchar(max)", "idempotency_add" + declaredList, "commit",
	}, x.heard())
	require.Equal(t, [][]any{{7.0, base64.StdEncoding.EncodeToString([]byte("k "))}}, list(x.sent("key_add"), "list"))
	require.Equal(t, [][]any{{7.0, base64.StdEncoding.EncodeToString([]byte("ä "))}}, list(x.sent("idempotency_try"), "list"))
	row := list(x.sent("message_insert"), "list")[0]
	require.Equal(t, []any{5.0, base64.StdEncoding.EncodeToString([]byte("ä "))}, []any{row[7], row[13]})
}

func settleAnswers() map[string]func(r faketds.Request) faketds.Answer {
	return map[string]func(r faketds.Request) faketds.Answer{
		"settle_lock": func(r faketds.Request) faketds.Answer {
			var out [][]any
			for _, row := range list(r, "list") {
				i, id := int32(row[0].(float64)), int64(row[2].(float64)) //nolint:forcetypeassert // Numbers of JSON.
				var key any
				if id == 11 {
					key = int64(5)
				}
				out = append(out, []any{i, fakeNow, fakeNow.Add(time.Second), key, true, false, false, int32(1), int32(3)})
			}
			return rows([]string{"i", "now", "lease_end", "key_id", "head", "cancel_requested", "expired", "attempt", "max_attempts"}, out...)
		},
		"keys_of":  always(rows([]string{"id", "key_id", "queue_id", "name"}, []any{int64(11), int64(5), int32(7), []byte("k")})),
		"key_lock": always(rows([]string{"key_id"}, []any{int64(5)})),
		"key_look": always(rows([]string{"key_id", "queue_id", "blocked_by", "blocked", "head", "pending", "parked"},
			[]any{int64(5), int32(7), nil, false, nil, false, int64(12)})),
		"key_heads": always(rows([]string{"id", "place", "free", "now"}, []any{int64(12), int32(2), true, fakeNow})),
	}
}

func TestSettle_OnTheWire(t *testing.T) {
	token := storage.Token{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	settle := func(position int64, action storage.Action) storage.SettleParams {
		return storage.SettleParams{Items: []storage.Settlement{{
			Ref: storage.Ref{QueueID: 7, Position: position}, Token: token, Action: action, Error: "e", HasDelay: true, Result: []byte{0, 1},
		}}}
	}
	store, x := play(t, settleAnswers())
	const withNow = ": @now datetime2(6), @list nvarchar(max)"
	for _, c := range []struct {
		name string
		p    storage.SettleParams
		want []string
	}{
		{"complete", settle(20, storage.ActionComplete), []string{
			"begin", "settle_lock" + declaredList, "complete_copy" + withNow, "message_delete" + declaredList, "commit",
		}},
		{"complete, with a key", settle(23, storage.ActionComplete), []string{
			"begin", "keys_of" + declaredList, "key_lock" + declaredList, "settle_lock" + declaredList, "complete_copy" + withNow,
			"message_delete" + declaredList, "key_look" + declaredList, "key_heads" + declaredList, "key_promote" + withNow, "commit",
		}},
		{"retry", settle(20, storage.ActionRetry), []string{
			"begin", "settle_lock" + declaredList, "settle_return: @now datetime2(6), @list nvarchar(max)", "settle_history" + withNow, "commit",
		}},
		{"dead-letter", settle(20, storage.ActionDeadLetter), []string{
			"begin", "settle_lock" + declaredList, "settle_dead" + withNow, "settle_history" + withNow, "message_delete" + declaredList, "commit",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x.heard()
			res, err := store.Settle(t.Context(), c.p)
			require.NoError(t, err)
			require.Equal(t, storage.ItemApplied, res.Items[0].Status)
			require.Equal(t, fakeNow, res.Items[0].SettleTime)
			require.Equal(t, c.want, x.heard())
		})
	}
	now, _ := x.sent("complete_copy").Param("now")
	require.Equal(t, "datetime2(7)", now.Type)
	require.Equal(t, "00010203-0405-0607-0809-0A0B0C0D0E0F", list(x.sent("complete_copy"), "list")[0][2])
	require.Equal(t, "0001", list(x.sent("complete_copy"), "list")[0][3])

	// A fence that does not hold any more in the statement that writes: nothing was written, and
	// the transaction runs again. S2, S13.
	x.heard()
	tries := 0
	x.on("complete_copy", func(faketds.Request) faketds.Answer {
		tries++
		return rows([]string{"changed"}, []any{int32(tries / 2)})
	})
	_, err := store.Settle(t.Context(), settle(20, storage.ActionComplete))
	require.NoError(t, err)
	require.Equal(t, []string{
		"begin", "settle_lock" + declaredList, "complete_copy" + withNow, "rollback",
		"begin", "settle_lock" + declaredList, "complete_copy" + withNow, "message_delete" + declaredList, "commit",
	}, x.heard())
}

func TestC15_GiveBackOnTheWire(t *testing.T) {
	token := storage.Token{15: 1}
	store, x := play(t, map[string]func(r faketds.Request) faketds.Answer{
		"now":       always(rows([]string{"now"}, []any{fakeNow})),
		"held_lock": always(rows([]string{"ord", "lease_end"}, []any{int32(0), fakeNow})),
	})
	res, err := store.GiveBack(t.Context(), storage.GiveBackParams{
		QueueID: 7, ClaimID: storage.ClaimID{1}, Claims: []storage.HeldClaim{{Ref: storage.Ref{QueueID: 7, Position: 20}, Token: token}},
	})
	require.NoError(t, err)
	require.Equal(t, 1, res.GivenBack)
	require.Equal(t, []string{
		"begin", "now", "claim_call_drop: @list nvarchar(max), @queue_id int", "held_lock" + declaredList, "give_back" + declaredList, "commit",
	}, x.heard())
	require.Equal(t, [][]any{{"01000000-0000-0000-0000-000000000000"}}, list(x.sent("claim_call_drop"), "list"))
}
