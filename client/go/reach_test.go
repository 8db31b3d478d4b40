package queuebox

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// logText is a log that may be read while it is written.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

func TestAServerThatIsNotThereIsToldOfAndNotTooOften(t *testing.T) {
	var log logText
	inBubble(t, func(t *testing.T, f *fake, c *Client) {
		f.refuse.Store(true)
		const warning = `level=WARN msg="cannot reach the server, trying again" target=passthrough:///fake `
		enqueued := make(chan error, 1)
		go func() {
			_, err := c.Enqueue(t.Context(), "q", NewMessage{})
			enqueued <- err
		}()
		time.Sleep(time.Second)
		require.Equal(t, 1, log.count(warning))
		require.Equal(t, 1, log.count("connection refused"), "the reason is said")
		time.Sleep(20 * time.Second)
		require.Equal(t, 1, log.count(warning), "an outage does not fill the log")
		f.refuse.Store(false)
		require.NoError(t, <-enqueued, "the call waited")
		time.Sleep(time.Second)
		require.Equal(t, 1, log.count(`level=INFO msg="reached the server again" target=passthrough:///fake`))

		f.refuse.Store(true)
		f.cut()
		go func() {
			_, err := c.Claim(t.Context(), ClaimOptions{Queue: "q", Wait: WaitForever})
			enqueued <- err
		}()
		time.Sleep(2*time.Minute + 20*time.Second)
		require.GreaterOrEqual(t, log.count(warning), 4)
		require.LessOrEqual(t, log.count(warning), 6)
		f.refuse.Store(false)
		f.put(1)
		require.NoError(t, <-enqueued)
	}, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
}

func TestTheLoggerIsTheDefaultUnlessOneIsSet(t *testing.T) {
	var log logText
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)

	c, err := Dial("127.0.0.1:1")
	require.NoError(t, err)
	NewWorker(c, WorkerConfig{Queue: "q"}).logger.Warn("heard")
	require.NoError(t, c.Close())
	require.Equal(t, 1, log.count("heard"))

	c, err = Dial("127.0.0.1:1", WithLogger(nil))
	require.NoError(t, err)
	NewWorker(c, WorkerConfig{Queue: "q"}).logger.Error("dropped")
	require.NoError(t, c.Close())
	require.Zero(t, log.count("dropped"))
}
