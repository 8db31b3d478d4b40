package leaktest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFind(t *testing.T) {
	end := make(chan struct{})
	go func() { <-end }()
	require.ErrorContains(t, find(time.Millisecond), "TestFind", "a goroutine that is left")
	time.AfterFunc(time.Second, func() { close(end) })
	require.NoError(t, find(time.Minute), "one that takes longer than goleak looks")
}
