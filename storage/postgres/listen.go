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
	// maxNotify bounds the ids in one payload, which may have 8000 bytes.
	maxNotify = 500
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

// Notify implements storage.Store: the payload is the ids of the queues.
func (s *Store) Notify(ctx context.Context, queueIDs []int32) error {
	if s.listen == nil {
		return nil
	}
	for len(queueIDs) > 0 {
		n := min(len(queueIDs), maxNotify)
		var b strings.Builder
		for i, id := range queueIDs[:n] {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strconv.Itoa(int(id)))
		}
		queueIDs = queueIDs[n:]
		if err := s.write(ctx, "notify", step{sql: s.sql.notify, args: []any{b.String()}}); err != nil {
			return err
		}
	}
	return nil
}

// Listen implements storage.Store, on a connection of its own.
func (s *Store) Listen(ctx context.Context, wake func(queueID int32), up func(bool)) error {
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
		connected, err := s.listenOnce(ctx, wake, restored)
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
func (s *Store) listenOnce(ctx context.Context, wake func(int32), up func(bool)) (connected bool, err error) {
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
		if err := s.await(ctx, conn, wake); err != nil {
			return true, err
		}
	}
}

// await waits for one notification, or asks whether the other side is still there.
func (s *Store) await(ctx context.Context, conn *pgx.Conn, wake func(int32)) error {
	wait, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	n, err := conn.WaitForNotification(wait)
	if err == nil {
		for id := range strings.SplitSeq(n.Payload, ",") {
			// Somebody else may use the channel too; what is no number is not ours.
			if id, err := strconv.ParseInt(id, 10, 32); err == nil {
				wake(int32(id))
			}
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
