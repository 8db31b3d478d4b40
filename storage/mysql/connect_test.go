package mysql_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/queuebox/queuebox/storage"
	"github.com/queuebox/queuebox/storage/mysql"
)

// A server of another kind waits for the client to speak first, as this one does; a proxy whose
// database hangs looks the same. Both must be told of, not waited for.
func TestAServerThatSaysNothingIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = lis.Close() }) // the system takes the connections, nobody answers
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := mysql.Config{URL: "mysql://u:secret@" + lis.Addr().String() + "/db"}

	_, err = mysql.Open(ctx, c)
	require.NoError(t, ctx.Err(), "open waits for as long as its caller")
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.ErrorContains(t, err, "the database did not answer in time")

	_, _, err = mysql.Migrate(ctx, c)
	require.NoError(t, ctx.Err(), "migrate waits for as long as its caller")
	require.ErrorIs(t, err, storage.ErrUnavailable)
	require.ErrorContains(t, err, "the database did not answer in time")
}
