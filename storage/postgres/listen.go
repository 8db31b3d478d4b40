package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/queuebox/queuebox/storage"
)

const (
	channel = "queuebox"
	// ownWord is what own_notify.sql says (E12).
	ownWord = "own"
	// maxNotify bounds the bytes of one payload, which may have 8000.
	maxNotify = 7900
	// quiet is how long a notification connection may say nothing before it is asked
	// whether it still lives, and how long it may take to answer (W5).
	quiet = 500 * time.Millisecond
	// First and longest pause before connecting anew.
	minReconnect = 100 * time.Millisecond
	maxReconnect = 2 * time.Second
	// repeatEvery is how many tries in vain go by from one warning to the next: with the
	// longest pause about half a minute.
	repeatEvery = 15
)

// Notify implements storage.Store: the payload is a list of the ids of the queues, as
// <queue>@<microseconds> where a time belongs to them, and, as c<queue>:<position>, of the
// messages whose claims may have ended. A hello is h<server>, in hexadecimal digits, with a
// question mark where it asks.
func (s *Store) Notify(ctx context.Context, n storage.Notice) error {
	if s.listen == nil {
		return nil
	}
	for _, payload := range payloads(n) {
		if err := s.write(ctx, "notify", step{sql: s.sql.notify, args: []any{payload}}); err != nil {
			return err
		}
	}
	return nil
}

// payloads writes a notice into as few payloads as it needs.
func payloads(n storage.Notice) []string {
	var out []string
	var b strings.Builder
	add := func(word string) {
		if b.Len()+1+len(word) > maxNotify {
			out = append(out, b.String())
			b.Reset()
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(word)
	}
	for _, q := range n.Queues {
		word := strconv.Itoa(int(q.QueueID))
		if !q.ReadyTime.IsZero() {
			word += "@" + strconv.FormatInt(q.ReadyTime.UnixMicro(), 10)
		}
		add(word)
	}
	for _, ref := range n.Claims {
		add(fmt.Sprintf("c%d:%d", ref.QueueID, ref.Position))
	}
	if n.Hello.Server != 0 {
		word := "h" + strconv.FormatUint(n.Hello.Server, 16)
		if n.Hello.Asks {
			word += "?"
		}
		add(word)
	}
	if b.Len() > 0 {
		out = append(out, b.String())
	}
	return out
}

// noticeOf reads a payload. Somebody else may use the channel too, and a later build may say
// more: a word that is neither is not ours.
func noticeOf(payload string) storage.Notice {
	var n storage.Notice
	for word := range strings.SplitSeq(payload, ",") {
		if word == ownWord {
			n.Own = true
			continue
		}
		if claim, ok := strings.CutPrefix(word, "c"); ok {
			queue, position, _ := strings.Cut(claim, ":")
			id, err := strconv.ParseInt(queue, 10, 32)
			at, err2 := strconv.ParseInt(position, 10, 64)
			if err == nil && err2 == nil {
				n.Claims = append(n.Claims, storage.Ref{QueueID: int32(id), Position: at})
			}
			continue
		}
		if server, ok := strings.CutPrefix(word, "h"); ok {
			server, asks := strings.CutSuffix(server, "?")
			if id, err := strconv.ParseUint(server, 16, 64); err == nil && id != 0 {
				n.Hello = storage.Hello{Server: id, Asks: asks}
			}
			continue
		}
		if q, ok := readyQueue(word); ok {
			n.Queues = append(n.Queues, q)
		}
	}
	return n
}

// readyQueue reads the word of a queue.
func readyQueue(word string) (storage.QueueReady, bool) {
	queue, at, timed := strings.Cut(word, "@")
	id, err := strconv.ParseInt(queue, 10, 32)
	if err != nil {
		return storage.QueueReady{}, false
	}
	q := storage.QueueReady{QueueID: int32(id)}
	if timed {
		us, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return storage.QueueReady{}, false
		}
		q.ReadyTime = time.UnixMicro(us).UTC()
	}
	return q, true
}

// Listen implements storage.Store, on a connection of its own.
func (s *Store) Listen(ctx context.Context, heard func(storage.Notice), up func(bool)) error {
	if s.listen == nil {
		return fmt.Errorf("postgres: listen: %w: a transaction-mode pooler passes no notifications on, and no listen URL is set", storage.ErrNotSupported)
	}
	pause := minReconnect
	failures := 0 // tries in vain since the connection was lost
	restored := func(connected bool) {
		if failures > 0 {
			s.log.InfoContext(ctx, "notification connection restored", "tries", failures)
			failures = 0
		}
		up(connected)
	}
	for ctx.Err() == nil {
		connected, err := s.listenOnce(ctx, heard, restored)
		if ctx.Err() != nil {
			break
		}
		if connected {
			up(false)
			pause = minReconnect
		}
		failures++
		level := slog.LevelDebug
		if failures%repeatEvery == 1 {
			level = slog.LevelWarn
		}
		s.log.Log(ctx, level, "notification connection lost", "error", classify("listen", err, false), "tries", failures, "retry_in", pause)
		wait := time.NewTimer(time.Duration(float64(pause) * (0.5 + rand.Float64()/2))) //nolint:gosec // No secret hangs on a pause.
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
		pause = min(2*pause, maxReconnect)
	}
	return nil //nolint:nilerr // The end of ctx is the end that the caller asked for.
}

// listenOnce listens until the connection breaks.
func (s *Store) listenOnce(ctx context.Context, heard func(storage.Notice), up func(bool)) (connected bool, err error) {
	conn, err := pgx.ConnectConfig(ctx, s.listen.Copy())
	if err != nil {
		return false, &connectError{err: err}
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quiet)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return false, err
	}
	up(true)
	for {
		if err := s.await(ctx, conn, heard); err != nil {
			return true, err
		}
	}
}

// await waits for one notification, or asks whether the other side is still there.
func (s *Store) await(ctx context.Context, conn *pgx.Conn, heard func(storage.Notice)) error {
	wait, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	n, err := conn.WaitForNotification(wait)
	if err == nil {
		said := noticeOf(n.Payload)
		if len(said.Queues) > 0 || len(said.Claims) > 0 || said.Own || said.Hello.Server != 0 {
			heard(said)
		}
		return nil
	}
	if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) || conn.IsClosed() {
		return err
	}
	ping, done := context.WithTimeout(ctx, quiet)
	defer done()
	return conn.Ping(ping)
}
