package storagetest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// roundTripRules check E8 and E11: what goes in comes out, byte for byte, and
// names compare by bytes.
func roundTripRules() []rule {
	return []rule{
		{name: "E8_payloads_of_all_bytes", clocks: bothClocks, run: tripPayloads},
		{name: "E8_attributes", clocks: bothClocks, run: tripAttributes},
		{name: "E8_strings_of_every_script", clocks: settable, run: tripStrings},
		{name: "E8_results_and_no_result", clocks: bothClocks, run: tripResults},
		{name: "E11_queue_names_compare_by_bytes", clocks: bothClocks, run: tripNames},
		{name: "E11_idempotency_keys_compare_by_bytes", clocks: bothClocks, run: tripKeys},
		{name: "E11_worker_ids_compare_by_bytes", clocks: settable, run: tripWorkers},
		{name: "E8_times_keep_every_tick", clocks: settable, run: tripTimes},
	}
}

// words are strings that some collation, normal form or encoding takes for others.
func words() []string {
	return []string{
		"plain", "Plain", "PLAIN", "plain ", " plain", "plain\t", "plain\n",
		"e\u0301t\u00e9", "\u00e9te\u0301", "\u00e9t\u00e9", "ete", // one look, three spellings
		"stra\u00dfe", "strasse", "\u0130", "i\u0307", "\u0131", "I", "i",
		"\u05e9\u05dc\u05d5\u05dd", "\u202eabc\u202c", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
		"\U0001F600", "\U0001F468\u200D\U0001F469\u200D\U0001F467", "\U0010FFFF", "\uFFFD", "\uFEFFplain", "\uFFFF",
		"\u0001\u001f\u007f", `a\b`, `a'b"c;--`, "a%b_c", "100%", "\\x00", "\u00a0", "０", "0", "ﬁ", "fi",
		strings.Repeat("n", 255), strings.Repeat("n", 254), strings.Repeat("\u00e9", 127) + "x", strings.Repeat("\U0001F600", 63) + "abc",
	}
}

func tripPayloads(t *testing.T, e *env) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	payloads := [][]byte{
		{},
		{0},
		{0, 0, 0},
		all,
		bytes.Repeat(all, 400),
		[]byte("\\x41"),
		[]byte("null"),
		{0xff, 0xfe, 0xfd},
		[]byte("'; drop table message; --"),
		bytes.Repeat([]byte{0}, 1<<20),
	}
	var ms []storage.NewMessage
	for _, p := range payloads {
		ms = append(ms, e.message(payload(p)))
	}
	refs := e.enqueue(t, ms...)
	cs := e.claimN(t, len(payloads))
	require.Equal(t, refs, refsOf(cs))
	for i, c := range cs {
		require.True(t, bytes.Equal(payloads[i], c.Message.Payload), "payload %d, claimed", i)
		require.EqualValues(t, len(payloads[i]), c.Message.PayloadBytes)
		require.True(t, bytes.Equal(payloads[i], e.get(t, c.Message.Ref).Payload), "payload %d, live", i)
		without, err := e.store.GetMessage(t.Context(), c.Message.Ref, false)
		require.NoError(t, err)
		require.Nil(t, without.Payload, "nil where the call did not ask for it")
		require.EqualValues(t, len(payloads[i]), without.PayloadBytes, "the size is told anyway")
		e.settle(t, settlement(c, []storage.Action{storage.ActionComplete, storage.ActionDeadLetter}[i%2]))
		done := e.get(t, c.Message.Ref)
		require.True(t, bytes.Equal(payloads[i], done.Payload), "payload %d, finished", i)
		require.EqualValues(t, len(payloads[i]), done.PayloadBytes)
	}
}

func tripAttributes(t *testing.T, e *env) {
	full := map[string]string{}
	for i, w := range words() {
		full[w] = fmt.Sprintf("%d %s", i, w)
	}
	big := map[string]string{}
	for i := range 64 {
		big[fmt.Sprintf("key-%02d", i)] = strings.Repeat("v", 900)
	}
	for i, attributes := range []map[string]string{nil, {}, {"": ""}, {"a": ""}, {"k": "v", "K": "V"}, full, big} {
		ref := e.one(t, func(m *storage.NewMessage) { m.Attributes = attributes })
		c := e.claimOne(t)
		require.Equal(t, ref, c.Message.Ref)
		check := func(m storage.Message, where string) {
			t.Helper()
			require.Len(t, m.Attributes, len(attributes), "set %d, %s", i, where)
			for k, v := range attributes {
				got, ok := m.Attributes[k]
				require.True(t, ok, "set %d, %s: %q is missing", i, where, k)
				require.Equal(t, v, got, "set %d, %s: %q", i, where, k)
			}
		}
		check(c.Message, "claimed")
		check(e.get(t, ref), "live")
		e.settle(t, settlement(c, []storage.Action{storage.ActionComplete, storage.ActionDeadLetter}[i%2]))
		check(e.get(t, ref), "finished")
	}
}

func tripStrings(t *testing.T, e *env) {
	for i, w := range words() {
		ref := e.one(t, keyed(w, "content"), func(m *storage.NewMessage) { m.ContentType = w })
		c := e.claimOneAs(t, w, lease)
		require.Equal(t, ref, c.Message.Ref)
		require.Equal(t, w, c.Message.ContentType)
		require.Equal(t, w, c.Message.IdempotencyKey)
		require.Equal(t, w, c.Message.WorkerID)
		s := settlement(c, storage.ActionDeadLetter)
		s.Error, s.ReasonCode = w, w
		if i%2 == 0 {
			retry := settlement(c, storage.ActionRetry)
			retry.Delay, retry.Error = 0, w
			require.Equal(t, storage.ItemApplied, e.settle(t, retry)[0].Status)
			c = e.claimOneAs(t, w, lease)
			require.Equal(t, w, c.Message.LastError)
			s.Token = c.Token
		}
		require.Equal(t, storage.ItemApplied, e.settle(t, s)[0].Status)
		m := e.get(t, ref)
		require.Equal(t, w, m.LastError)
		require.Equal(t, w, m.ReasonCode)
		require.Equal(t, w, m.ContentType)
		require.Equal(t, w, m.IdempotencyKey)
		require.Equal(t, w, m.WorkerID)
	}
}

func tripResults(t *testing.T, e *env) {
	for _, result := range [][]byte{nil, {}, {0}, []byte(`{"ok":true}`), bytes.Repeat([]byte{0xff}, 100000)} {
		ref := e.one(t)
		s := settlement(e.claimOne(t), storage.ActionComplete)
		s.Result = result
		require.Equal(t, storage.ItemApplied, e.settle(t, s)[0].Status)
		require.True(t, bytes.Equal(result, e.get(t, ref).Result))
	}
}

func tripNames(t *testing.T, e *env) {
	names := words()
	ids := map[string]int32{}
	for _, name := range names {
		q, err := e.store.CreateQueue(t.Context(), name, settings(), 0)
		require.NoError(t, err, "%q is another name", name)
		require.Equal(t, name, q.Name)
		ids[name] = q.ID
	}
	for _, name := range names {
		q, err := e.store.GetQueue(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, ids[name], q.ID, "%q", name)
		require.Equal(t, name, q.Name)
		_, err = e.store.CreateQueue(t.Context(), name, settings(), 0)
		require.ErrorIs(t, err, storage.ErrQueueExists, "%q", name)
	}
	for _, near := range []string{"pLain", "plain  ", "PLAIN ", "\u00c9t\u00e9", strings.Repeat("n", 253)} {
		_, err := e.store.GetQueue(t.Context(), near)
		require.ErrorIs(t, err, storage.ErrQueueNotFound, "%q", near)
	}
}

func tripKeys(t *testing.T, e *env) {
	refs := map[string]storage.Ref{}
	for _, w := range words() {
		refs[w] = e.one(t, keyed(w, "content"))
	}
	for _, w := range words() {
		got := e.enqueueResult(t, e.message(keyed(w, "content")))[0]
		require.Equal(t, storage.EnqueueDuplicate, got.Status, "%q", w)
		require.Equal(t, refs[w], got.Ref, "%q", w)
	}
}

func tripWorkers(t *testing.T, e *env) {
	e.one(t)
	got := e.claimWithID(t, "worker", claimID(1), 1)
	require.Len(t, got.Messages, 1)
	for _, other := range []string{"Worker", "worker ", " worker", "w\u00f6rker"} {
		require.Equal(t, storage.ClaimIDReused, e.claimWithID(t, other, claimID(1), 1).Status, "%q", other)
	}
	require.Equal(t, storage.ClaimReplayed, e.claimWithID(t, "worker", claimID(1), 1).Status)
}

func tripTimes(t *testing.T, e *env) {
	ready := e.now.Add(time.Hour + 7*e.tick)
	ref := e.one(t, func(m *storage.NewMessage) { m.AvailableTime = ready })
	sameTime(t, ready, e.get(t, ref).ReadyTime, "ready time")
	e.advance(t, time.Hour+7*e.tick)
	c := e.claimOneAs(t, "A", time.Second+3*time.Millisecond)
	sameTime(t, e.now.Add(time.Second+3*time.Millisecond), c.Message.LeaseEnd, "lease end")
	e.advance(t, 3*e.tick)
	got := e.settle(t, settlement(c, storage.ActionComplete))[0]
	sameTime(t, e.now, got.SettleTime, "settle time")
	m := e.get(t, ref)
	sameTime(t, e.now, m.FinishTime, "finish time")
	require.True(t, m.ExpireTime.IsZero(), "a time that is not set is zero")
}
