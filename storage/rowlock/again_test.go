package rowlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
)

func TestS13HeldItemsAreTriedAgainUntilTheyAreHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var tries [][]int
		left, err := heldAgain(t.Context(), []int{3, 5}, func(some []int) ([]int, error) {
			tries = append(tries, some)
			return [][]int{{3, 5}, {5}, nil}[len(tries)-1], nil
		})
		require.NoError(t, err)
		require.Empty(t, left)
		require.Equal(t, [][]int{{3, 5}, {3, 5}, {5}}, tries)
		require.Equal(t, 7*time.Millisecond, time.Since(start))
	})
}

func TestS13HeldItemsAreLeftToTheSlowLaneInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		left, err := heldAgain(t.Context(), []int{1}, func(some []int) ([]int, error) { return some, nil })
		require.NoError(t, err)
		require.Equal(t, []int{1}, left)
		require.Equal(t, 2*againMost-time.Millisecond, time.Since(start))

		// Also where a try certainly did not happen, and where the caller has left.
		left, err = heldAgain(t.Context(), []int{1}, func([]int) ([]int, error) { return nil, storage.ErrUnavailable })
		require.NoError(t, err)
		require.Equal(t, []int{1}, left)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		left, err = heldAgain(gone, []int{1}, func([]int) ([]int, error) { panic("nobody waits for it") })
		require.NoError(t, err)
		require.Equal(t, []int{1}, left)
		_, err = heldAgain(t.Context(), []int{1}, func([]int) ([]int, error) { return nil, errors.ErrUnsupported })
		require.ErrorIs(t, err, errors.ErrUnsupported)
	})
}
