package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

// TestW7WhatALookFindsAmongTheDelayedIsNotLostToAClaim: the look is made beside the claims, so one
// is mostly under way when it answers, and that one began behind what the look has found.
func TestW7WhatALookFindsAmongTheDelayedIsNotLostToAClaim(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	f := &fronts{}
	f.begin(now, true)
	f.end(storage.ClaimResult{Now: now, DueEnd: true, End: true})
	hidden := now.Add(-10 * time.Second) // somebody had locked it
	for range 2 {
		f.beginLook()
		now = now.Add(time.Second)
		f.begin(now, true)
		require.True(t, f.endLook(storage.FirstReadyResult{Now: now, Due: hidden}), "the next claim must look")
		f.end(storage.ClaimResult{Now: now, DueEnd: true, End: true})
		_, due := f.begin(now, true)
		require.Equal(t, hidden, due)
		f.end(storage.ClaimResult{Now: now, DueEnd: true, End: true}) // it had the message
	}
	require.False(t, f.hides(now))
	require.True(t, f.hides(hidden), "what a pass over all messages meets")
}
