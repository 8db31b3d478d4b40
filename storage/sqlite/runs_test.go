package sqlite

import (
	"path/filepath"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// TestRunsOf covers every position once, and takes one list where there are many short runs.
func TestRunsOf(t *testing.T) {
	require.Empty(t, runsOf(nil))
	require.Equal(t, []run{{from: 0, to: 1, whole: true, first: 7, last: 7}}, runsOf([]int64{7}))
	require.Equal(t, []run{
		{from: 0, to: 4, whole: true, first: 1, last: 4}, {from: 4, to: 8, whole: true, first: 6, last: 9},
	}, runsOf([]int64{1, 2, 3, 4, 6, 7, 8, 9}))
	require.Equal(t, []run{{from: 0, to: 3}}, runsOf([]int64{1, 2, 4}))
	require.Equal(t, []run{{from: 0, to: 4}}, runsOf([]int64{4, 3, 2, 1}), "not in order: no runs")
}

// TestTogether_KeepsTokensWithTheirPositions when it is sorted.
func TestTogether_KeepsTokensWithTheirPositions(t *testing.T) {
	var q together
	for _, position := range []int64{5, 3, 9, 1, 2} {
		q.positions = append(q.positions, position)
		token := storage.Token{byte(position)}
		q.tokens = append(q.tokens, token[:]...)
	}
	sort.Sort(&q)
	require.Equal(t, []int64{1, 2, 3, 5, 9}, q.positions)
	for i, position := range q.positions {
		require.EqualValues(t, position, q.tokens[tokenBytes*i])
	}
}

// TestS1_RunsAndLists: whether messages are completed by a run or by a list, and whatever stands
// between them, each is judged by its own token.
func TestS1_RunsAndLists(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "q.db"))
	q, err := s.CreateQueue(t.Context(), "q", storage.QueueSettings{MaxAttempts: 9, CompletedRetention: time.Hour}, 0)
	require.NoError(t, err)
	messages := make([]storage.NewMessage, 100)
	for i := range messages {
		messages[i] = storage.NewMessage{QueueID: q.ID, Payload: []byte{byte(i)}, WireBytes: int64(i)}
		switch {
		case i%10 == 3:
			messages[i].Priority = 1 // claimed first, so that there are gaps
		case i > 90:
			messages[i].Attributes = map[string]string{"i": "x"}
		}
	}
	e, err := s.Enqueue(t.Context(), storage.EnqueueParams{Messages: messages})
	require.NoError(t, err)
	c, err := s.Claim(t.Context(), storage.ClaimParams{QueueID: q.ID, Calls: []storage.ClaimCall{
		{Max: 40, Lease: time.Hour, WorkerID: "a"}, {Max: 60, Lease: time.Hour, WorkerID: "b", ClaimID: storage.ClaimID{1}},
	}})
	require.NoError(t, err)
	first := e.Items[0].Ref.Position
	var p storage.SettleParams
	for _, call := range c.Calls {
		for _, m := range call.Messages {
			require.Equal(t, []byte{byte(m.Message.Ref.Position - first)}, m.Message.Payload)
			require.EqualValues(t, 1, m.Message.Attempt)
			p.Items = append(p.Items, storage.Settlement{Ref: m.Message.Ref, Token: m.Token, Action: storage.ActionComplete})
		}
	}
	require.Len(t, p.Items, 100)
	// Every 25th has the token of its neighbour.
	for i := 0; i < 100; i += 25 {
		p.Items[i].Token = p.Items[i+1].Token
	}
	res, err := s.Settle(t.Context(), p)
	require.NoError(t, err)
	for i, it := range res.Items {
		m, err := s.GetMessage(t.Context(), p.Items[i].Ref, true)
		require.NoError(t, err)
		require.Equal(t, []byte{byte(m.Ref.Position - first)}, m.Payload)
		if i%25 == 0 {
			require.Equal(t, storage.ItemLost, it.Status)
			require.Equal(t, storage.StateProcessing, m.State)
			continue
		}
		require.Equal(t, storage.ItemApplied, it.Status)
		require.Equal(t, storage.StateCompleted, m.State)
	}
}

// TestE9_RowsTogether: however many of a batch have what in common, all stand in its order as
// they were given.
func TestE9_RowsTogether(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "q.db"))
	q, err := s.CreateQueue(t.Context(), "q", storage.QueueSettings{MaxAttempts: 9, Ordering: storage.OrderingSkipDead}, 0)
	require.NoError(t, err)
	for _, n := range []int{1, 2, 7, 8, 9, 31, 32, 33, 41, 100} {
		messages := make([]storage.NewMessage, n)
		for i := range messages {
			m := storage.NewMessage{QueueID: q.ID, Payload: []byte{byte(n), byte(i)}, WireBytes: int64(i), ContentType: "a"}
			switch {
			case i%7 == 3:
				m.IdempotencyKey = string([]byte{'k', byte('0' + n), byte('0' + i)})
			case i%11 == 5:
				m.OrderingKey = "key"
			case i%13 == 6:
				m.Delay = time.Hour
			case i%17 == 8:
				m.ContentType, m.Attributes = "b", map[string]string{"a": "b"}
			case i%19 == 9:
				m.ExpireTime = time.Now().Add(time.Hour)
			}
			messages[i] = m
		}
		e, err := s.Enqueue(t.Context(), storage.EnqueueParams{Messages: messages})
		require.NoError(t, err)
		for i, it := range e.Items {
			require.Equal(t, e.Items[0].Ref.Position+int64(i), it.Ref.Position)
			m, err := s.GetMessage(t.Context(), it.Ref, true)
			require.NoError(t, err)
			want := messages[i]
			require.Equal(t, want.Payload, m.Payload)
			require.Equal(t, want.ContentType, m.ContentType)
			require.Equal(t, want.IdempotencyKey, m.IdempotencyKey)
			require.Equal(t, want.OrderingKey, m.OrderingKey)
			require.Equal(t, want.Attributes, m.Attributes)
			require.Equal(t, !want.ExpireTime.IsZero(), !m.ExpireTime.IsZero())
			require.Equal(t, it.ReadyTime, m.ReadyTime)
			require.Equal(t, want.Delay > 0, m.ReadyTime.After(m.CreateTime))
			require.EqualValues(t, 2, m.PayloadBytes)
		}
	}
}
