package storagetest

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

func jsonOf(m map[string]string) string {
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// all lists the messages of the queue, oldest first.
func (e *env) all(t *testing.T) []storage.Message {
	t.Helper()
	ms := e.list(t, storage.ListMessagesParams{Payload: true, Limit: 1000})
	for i, j := 0, len(ms)-1; i < j; i, j = i+1, j-1 {
		ms[i], ms[j] = ms[j], ms[i]
	}
	return ms
}

func ownEnqueue(t *testing.T, e *env) {
	full := e.message(payload([]byte("\x00bytes\xff")))
	full.ContentType, full.Attributes, full.Priority, full.MaxAttempts = "text/plain", map[string]string{"a": "ü\n\"", "": ""}, -7, 3
	full.IdempotencyKey, full.ExpireTime = "key", e.now.Add(time.Hour)
	full.AvailableTime = e.now.Add(time.Minute)
	ms := []storage.NewMessage{e.message(payload(nil)), full, e.message(payload([]byte("last")))}
	ms[0].Payload = []byte{}
	ms[2].Attributes = map[string]string{}
	s := e.begin(t, e.anyLevel())
	for _, m := range ms {
		require.NoError(t, e.appendOwn(s, t, m))
	}
	require.Zero(t, e.place(t).Placed, "nothing before the commit")
	require.Empty(t, e.all(t))
	require.NoError(t, s.Commit())
	require.Empty(t, e.claimN(t, 10), "nothing before it is placed")
	done := e.place(t)
	require.Equal(t, 3, done.Placed)
	require.Zero(t, e.place(t).Placed, "once")
	got := e.all(t)
	require.Len(t, got, 3)
	// The same by Enqueue, in a queue of its own, is what they must be like.
	twin := e.on(e.newQueue(t, settings()))
	for i := range ms {
		ms[i].QueueID = twin.queue.ID
		ms[i].ContentHash = storage.ContentHash(&ms[i])
	}
	twin.enqueue(t, ms...)
	want := twin.all(t)
	byPayload := func(ms []storage.Message, p []byte) storage.Message {
		for _, m := range ms {
			if string(m.Payload) == string(p) {
				m.Ref = storage.Ref{}
				return m
			}
		}
		require.Failf(t, "no message", "payload %q", p)
		return storage.Message{}
	}
	for _, m := range ms {
		require.Equal(t, byPayload(want, m.Payload), byPayload(got, m.Payload))
	}
	require.Less(t, positionOf(t, got, ms[0].Payload), positionOf(t, got, ms[2].Payload), "places in the order of the statements")
	for _, r := range done.Ready {
		require.Equal(t, e.queue.ID, r.QueueID)
	}
	require.NotEmpty(t, done.Ready)
	for _, m := range e.claimN(t, 10) {
		require.EqualValues(t, 1, m.Message.Attempt)
		e.complete(t, m)
	}
}

func positionOf(t *testing.T, ms []storage.Message, p []byte) int64 {
	t.Helper()
	for _, m := range ms {
		if string(m.Payload) == string(p) {
			return m.Ref.Position
		}
	}
	require.Failf(t, "no message", "payload %q", p)
	return 0
}

func ownDelays(t *testing.T, e *env) {
	at := e.now
	e.enqueueOwn(t,
		e.message(payload([]byte("late")), delay(time.Minute)),
		e.message(payload([]byte("passed")), delay(2*time.Second)),
		e.message(payload([]byte("past")), func(m *storage.NewMessage) { m.AvailableTime = at.Add(-time.Hour) }),
	)
	e.advance(t, 10*time.Second)
	require.Equal(t, 3, e.place(t).Placed)
	for _, m := range e.all(t) {
		sameTime(t, at, m.CreateTime, "it was made by the statement")
		want := e.now
		if string(m.Payload) == "late" {
			want = at.Add(time.Minute)
		}
		sameTime(t, want, m.ReadyTime, string(m.Payload))
	}
	now := e.claimN(t, 10)
	require.Len(t, now, 2)
	for _, c := range now {
		e.complete(t, c)
	}
	e.advanceTo(t, at.Add(time.Minute))
	require.Len(t, e.claimN(t, 10), 1)
}

func ownLimits(t *testing.T, e *env) {
	long := strings.Repeat("x", 256)
	many := map[string]string{}
	for i := range 65 {
		many[strings.Repeat("k", i+1)] = ""
	}
	bad := map[string]func(*storage.NewMessage){
		"payload":         payload(make([]byte, ownPayload+1)),
		"content type":    func(m *storage.NewMessage) { m.ContentType = long },
		"idempotency key": func(m *storage.NewMessage) { m.IdempotencyKey = long },
		"ordering key":    func(m *storage.NewMessage) { m.OrderingKey = strings.Repeat("ü", 128) },
		"attributes":      func(m *storage.NewMessage) { m.Attributes = many },
		"attribute bytes": func(m *storage.NewMessage) {
			m.Attributes = map[string]string{"a": strings.Repeat("x", 64<<10)}
		},
		"content type with NUL":    func(m *storage.NewMessage) { m.ContentType = "a\x00b" },
		"idempotency key with NUL": func(m *storage.NewMessage) { m.IdempotencyKey = "a\x00b" },
		"ordering key with NUL":    func(m *storage.NewMessage) { m.OrderingKey = "a\x00b" },
		"attempts":                 func(m *storage.NewMessage) { m.MaxAttempts = -1 },
		"delay":                    delay(11 * 365 * 24 * time.Hour),
		"both times": func(m *storage.NewMessage) {
			m.Delay, m.AvailableTime = time.Second, e.now
		},
		"available time": func(m *storage.NewMessage) { m.AvailableTime = time.Date(2201, 1, 1, 0, 0, 0, 0, time.UTC) },
		"expire time":    func(m *storage.NewMessage) { m.ExpireTime = time.Date(2201, 1, 1, 0, 0, 0, 0, time.UTC) },
	}
	e.unchanged(t, func() {
		for name, mod := range bad {
			s := e.begin(t, e.anyLevel())
			err := e.appendOwn(s, t, e.message(mod))
			require.Error(t, err, name)
			require.True(t, e.in.Own.Refused(err), "%s: %v", name, err)
			require.NoError(t, s.Rollback())
		}
		for _, attributes := range []string{
			`{"a": 1}`, `["a"]`, `{"a": ["b"]}`, `{"a": null}`, "no json", `{a: 'json5',}`, `{"a": "\u0000"}`, `{"\u0000": "a"}`,
			`{"a": "\x41"}`, `{"\q": "a"}`, `{"a": "\\\'"}`,
		} {
			s := e.begin(t, e.anyLevel())
			_, err := s.Query(e.sqlOf(t, storage.TransactionEnqueue), []byte("x"), nil, attributes, nil, nil, nil, nil, nil, nil, nil)
			require.Error(t, err, attributes)
			require.True(t, e.in.Own.Refused(err), "%s: %v", attributes, err)
			require.NoError(t, s.Rollback())
		}
		gone, err := e.store.TransactionSQL(storage.TransactionSQLParams{QueueID: 1 << 30, QueueName: "gone", MaxPayloadBytes: 10})
		require.NoError(t, err)
		s := e.begin(t, e.anyLevel())
		_, err = s.Query(gone.Statements[0].SQL, []byte("x"), nil, nil, nil, nil, nil, nil, nil, nil, nil)
		require.Error(t, err, "no such queue")
		require.True(t, e.in.Own.Refused(err), "%v", err)
		require.NoError(t, s.Rollback())
	})
	// The limits themselves, and nothing but a payload.
	e.enqueueOwn(t, e.message(payload(make([]byte, ownPayload)), func(m *storage.NewMessage) {
		m.ContentType, m.IdempotencyKey = long[1:], long[1:]
		m.Attributes = map[string]string{"a": strings.Repeat("x", 64<<10-1)}
	}))
	s := e.begin(t, e.anyLevel())
	_, err := s.Query(e.sqlOf(t, storage.TransactionEnqueue), []byte("x"), nil, nil, nil, nil, nil, nil, nil, nil, nil)
	require.NoError(t, err)
	// A key twice: the last one holds, as everywhere in JSON.
	_, err = s.Query(e.sqlOf(t, storage.TransactionEnqueue), []byte("x"), nil, `{"a": "1", "b": "\\\\x", "a": "2"}`, nil, nil, nil, nil, nil, nil, nil)
	require.NoError(t, err)
	require.NoError(t, s.Commit())
	require.Equal(t, 3, e.place(t).Placed)
	got := e.claimN(t, 10)
	require.Len(t, got, 3)
	for _, m := range got {
		if attributes := m.Message.Attributes; attributes["b"] != "" {
			require.Equal(t, map[string]string{"a": "2", "b": `\\x`}, attributes)
		}
		require.Equal(t, settings().MaxAttempts, m.Message.MaxAttempts, "0 takes the setting of the queue")
	}
}

func ownEnqueueRolledBack(t *testing.T, e *env) {
	e.unchanged(t, func() {
		for _, end := range []func(OwnSession){
			func(s OwnSession) { require.NoError(t, s.Rollback()) }, func(s OwnSession) { s.Kill() },
		} {
			s := e.begin(t, e.anyLevel())
			require.NoError(t, e.appendOwn(s, t, e.message(keyed("key", "content"))))
			end(s)
			require.Zero(t, e.place(t).Placed)
		}
	})
}

func ownDuplicate(t *testing.T, e *env) {
	m := e.message(payload([]byte("same\x00")), func(m *storage.NewMessage) {
		m.IdempotencyKey, m.OrderingKey, m.ContentType, m.Priority, m.MaxAttempts = "key", "ördering", "type/ü", -3, 9
		m.Attributes = map[string]string{"b": "1", "a": "2", "": "3", "ü": "ß", "B": "\n", "aa": ""}
	})
	m.ContentHash = storage.ContentHash(&m)
	// Against a message of Enqueue, against itself, against another transaction, and after
	// the message was completed.
	first := e.enqueue(t, m)[0]
	e.enqueueOwn(t, m, m)
	e.enqueueOwn(t, m)
	done := e.place(t)
	require.Equal(t, [3]int{0, 3, 0}, [3]int{done.Placed, done.Duplicates, done.Reused})
	require.Len(t, e.all(t), 1)
	e.complete(t, e.claimOne(t))
	e.enqueueOwn(t, m)
	require.Equal(t, 1, e.place(t).Duplicates)
	// The other way round: Enqueue meets what was placed.
	m.IdempotencyKey = "other"
	e.enqueueOwn(t, m)
	require.Equal(t, 1, e.place(t).Placed)
	res, err := e.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{m}})
	require.NoError(t, err)
	require.Equal(t, storage.EnqueueDuplicate, res.Items[0].Status, "both have the same content hash")
	require.NotEqual(t, first, res.Items[0].Ref)
	// E5: free again when its message has passed its retention.
	e.advance(t, 2*time.Hour)
	m.IdempotencyKey = "key"
	e.enqueueOwn(t, m)
	require.Equal(t, 1, e.place(t).Placed)
}

func ownReused(t *testing.T, e *env) {
	m := e.message(payload([]byte("first")), func(m *storage.NewMessage) { m.IdempotencyKey = "key" })
	m.ContentHash = storage.ContentHash(&m)
	first := e.enqueue(t, m)[0]
	for _, mod := range []func(*storage.NewMessage){
		payload([]byte("other")),
		func(m *storage.NewMessage) { m.ContentType = "other" },
		func(m *storage.NewMessage) { m.Attributes = map[string]string{"a": "b"} },
		func(m *storage.NewMessage) { m.Priority = 1 },
		func(m *storage.NewMessage) { m.MaxAttempts = 2 },
	} {
		other := m
		mod(&other)
		fine := e.message(payload([]byte("fine")))
		e.enqueueOwn(t, fine, other)
		done := e.place(t)
		require.Equal(t, [3]int{1, 0, 1}, [3]int{done.Placed, done.Duplicates, done.Reused}, "it fails no neighbour")
		dead := e.list(t, storage.ListMessagesParams{States: []storage.State{storage.StateDead}, Payload: true, Limit: 1})[0]
		require.Equal(t, storage.DeadReasonKeyReused, dead.DeadReason)
		require.Equal(t, "key", dead.IdempotencyKey)
		require.Equal(t, other.Payload, dead.Payload)
		require.Zero(t, dead.Attempt)
		require.False(t, dead.FinishTime.IsZero())
		require.NotEmpty(t, dead.LastError)
	}
	require.Equal(t, first, e.claimOne(t).Message.Ref, "the holder of the key is as it was")
	// The dead ones do not hold the key.
	res, err := e.store.Enqueue(t.Context(), storage.EnqueueParams{Messages: []storage.NewMessage{m}})
	require.NoError(t, err)
	require.Equal(t, storage.Enqueued{Status: storage.EnqueueDuplicate, Ref: first, State: storage.StateProcessing}, res.Items[0])
}

func ownPlacedOnce(t *testing.T, e *env) {
	const transactions, each = 20, 10
	for i := range transactions {
		ms := make([]storage.NewMessage, each)
		for k := range ms {
			ms[k] = e.message(payload([]byte{byte(i), byte(k)}))
			if k%3 == 0 {
				ms[k].IdempotencyKey = string([]byte{'a' + byte(i), 'a' + byte(k)})
			}
		}
		e.enqueueOwn(t, ms...)
	}
	var wg sync.WaitGroup
	for _, store := range []storage.Store{e.store, e.other, e.store, e.other} {
		wg.Go(func() {
			for range 30 {
				_, _ = store.Place(t.Context(), storage.PlaceParams{Limit: 9})
			}
		})
	}
	wg.Wait()
	e.place(t)
	seen := map[string]bool{}
	for _, m := range e.all(t) {
		require.False(t, seen[string(m.Payload)], "placed twice")
		seen[string(m.Payload)] = true
	}
	require.Len(t, seen, transactions*each)
}
