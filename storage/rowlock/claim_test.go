package rowlock

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// Hints cut the ready set into parts that follow each other and leave nothing out but what lies
// below a hint.
func TestC12SegmentsOfHints(t *testing.T) {
	const first, last = math.MinInt32 - 1, math.MaxInt32 + 1
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	hint := func(priority int32, ready time.Time) storage.ScanHint {
		return storage.ScanHint{Priority: priority, ReadyTime: ready}
	}
	require.Equal(t, []segment{{first, earliest, last}}, segments(nil))
	require.Equal(t, []segment{{first, earliest, -1}, {0, at, last}}, segments([]storage.ScanHint{hint(0, at)}))
	require.Equal(
		t, []segment{{first, earliest, -6}, {-5, at, 0}, {1, at, last}},
		segments([]storage.ScanHint{hint(-1, at), hint(5, at)}), "the larger priority first",
	)
	require.Equal(
		t, []segment{{first, earliest, -6}, {-5, at, last}},
		segments([]storage.ScanHint{hint(5, at.Add(time.Second)), hint(5, at)}), "twice the same: the earlier one",
	)
	require.Equal(
		t, []segment{{first, earliest, math.MinInt32}, {-math.MaxInt32, at, math.MaxInt32}, {math.MaxInt32 + 1, at, last}},
		segments([]storage.ScanHint{hint(math.MaxInt32, at), hint(math.MinInt32, at)}), "the ends of the range",
	)
}

// What goes into one INSERT is bounded by rows and by bytes, and one row always goes.
func TestE9WhatGoesIntoOneInsert(t *testing.T) {
	rows := func(n, payload, attributes int) []MessageRow {
		all := make([]MessageRow, n)
		for i := range all {
			all[i].Payload, all[i].Attributes = make([]byte, payload), make([]byte, attributes)
		}
		return all
	}
	require.Equal(t, 1, insertable(rows(1, 0, 0)))
	require.Equal(t, maxInsertRows, insertable(rows(maxInsertRows, 10, 10)))
	require.Equal(t, maxInsertRows, insertable(rows(maxInsertRows+1, 10, 10)))
	require.Equal(t, 1, insertable(rows(1, 40<<20, 0)), "however large")
	require.Equal(t, 1, insertable(rows(2, 0, maxInsertBytes)))
	require.Equal(t, 2, insertable(rows(3, maxInsertBytes/2, 0)), "exactly the bound fits")

	keyed := []storage.NewMessage{{IdempotencyKey: "x"}}
	require.False(t, plain(keyed, make([][]byte, 1)))
	require.False(t, plain([]storage.NewMessage{{OrderingKey: "x"}}, make([][]byte, 1)))
	require.True(t, plain(make([]storage.NewMessage, 2), make([][]byte, 2)))
	require.False(t, plain(make([]storage.NewMessage, 2), [][]byte{make([]byte, maxInsertBytes), {1}}), "two INSERTs are a transaction")
}
