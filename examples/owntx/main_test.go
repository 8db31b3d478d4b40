package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/internal/blackbox"
)

func TestMain(m *testing.M) { os.Exit(blackbox.Main(m)) }

// The program runs against a real server, and a lost claim leaves no row (E12).
func TestEachOrderIsShippedOnce(t *testing.T) {
	blackbox.Each(t, func(t *testing.T, db *blackbox.Database) {
		server := db.Start(t)
		for range 2 { // a second run finds its tables and its queue
			var out bytes.Buffer
			require.NoError(t, run(t.Context(), &out, server.Addr, strings.TrimPrefix(db.URL, "sqlite://"), 7), out.String())
			text := out.String()
			require.Contains(t, text, "order 7: the buyer changes his mind, so it is neither in the table nor in the queue")
			require.Contains(t, text, "7 orders taken down")
			require.Equal(t, 2, strings.Count(text, "attempt 1 lost its claim and left no row"), text)
			require.Equal(t, 5, strings.Count(text, "shipped by attempt 1"), text)
			require.Equal(t, 2, strings.Count(text, "shipped by attempt 2"), text)
			require.Contains(t, text, "7 orders, 7 shipments, 0 orders without exactly one")
		}
	})
}
