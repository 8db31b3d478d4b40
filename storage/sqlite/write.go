package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// The pauses between two looks at the write lock of another process.
const (
	minBusyPause = 200 * time.Microsecond
	maxBusyPause = 3 * time.Millisecond
)

// verdict is how a write transaction shall end when nothing failed.
type verdict bool

const (
	commit   verdict = true
	rollback verdict = false
)

// write runs fn in a transaction that holds the write lock of the file from its first
// statement on, and that other calls may share. Where fn fails, or says so, what it did is
// taken back and nothing of it has changed.
func (s *Store) write(ctx context.Context, noun string, fn writing) error {
	return s.submit(noun, &call{ctx: ctx, fn: fn, answer: make(chan error, 1)}) //nolint:contextcheck // the writer serves many
}

// writeAlone is write for one that may take long: nobody else waits for its COMMIT.
func (s *Store) writeAlone(ctx context.Context, noun string, fn writing) error {
	return s.submit(noun, &call{ctx: ctx, fn: fn, answer: make(chan error, 1), alone: true}) //nolint:contextcheck // as above
}

func (s *Store) submit(noun string, k *call) error {
	s.open.RLock()
	defer s.open.RUnlock()
	err := classify(k.ctx.Err())
	switch {
	case s.closed:
		err = errClosed
	case err == nil:
		err = s.writer.do(k)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", noun, err)
	}
	return nil
}

// begin takes the write lock of the file, waiting for another process for a bounded time,
// and only as long as somebody is there for whom it waits.
// SQLite's own wait sleeps 100 ms between two looks: beside a process that writes without
// a break it finds the lock free too seldom, and gave up after 5 s under load. So the
// writer looks by itself, every few milliseconds.
func (s *Store) begin(ctx context.Context, c *session, awaited func() bool) error {
	err := c.control(ctx, "BEGIN IMMEDIATE")
	if !isBusy(err) {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, s.cfg.BusyTimeout)
	defer cancel()
	for pause := minBusyPause; ; pause = min(2*pause, maxBusyPause) {
		select {
		case <-time.After(pause/2 + rand.N(pause)): //nolint:gosec // jitter is no secret
		case <-wait.Done():
			return err
		}
		if !awaited() {
			return err
		}
		if err = c.control(ctx, "BEGIN IMMEDIATE"); !isBusy(err) {
			return err
		}
	}
}

// rollback ends the transaction. After some errors SQLite has ended it by itself and
// this fails; a fresh connection is cheaper than telling these cases apart.
func (c *session) rollback(quiet context.Context) {
	if err := c.control(quiet, "ROLLBACK"); err != nil {
		c.broken = true
	}
}

// commit makes the transaction durable. The commit itself is never interrupted: it would
// say less than one that ran to its end. Where it fails the outcome is unknown, since what it
// wrote to the log may be found there after a crash (D8).
func (c *session) commit(quiet context.Context) error {
	if err := c.control(quiet, "COMMIT"); err != nil {
		c.rollback(quiet)
		return fmt.Errorf("%w: commit: %w", storage.ErrOutcomeUnknown, err)
	}
	return nil
}

// read runs fn on a snapshot of the file, beside the writer.
func (s *Store) read(ctx context.Context, noun string, fn func(c *session) error) error {
	err := s.withReader(ctx, func(c *session) error {
		if err := c.control(ctx, "BEGIN"); err != nil {
			c.broken = c.broken || ctx.Err() != nil
			return classify(err)
		}
		err := fn(c)
		c.rollback(context.WithoutCancel(ctx))
		return classify(err)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", noun, err)
	}
	return nil
}

// withReader takes a session from the idle ones, opening it where there is none yet, and
// puts it back.
func (s *Store) withReader(ctx context.Context, fn func(c *session) error) error {
	s.open.RLock()
	defer s.open.RUnlock()
	if s.closed {
		return errClosed
	}
	var c *session
	select {
	case c = <-s.readers:
	case <-ctx.Done():
		return classify(ctx.Err())
	}
	defer func() {
		if c != nil && c.broken {
			if err := c.close(); err != nil {
				s.log.WarnContext(ctx, "close of a broken connection", "error", err)
			}
			c = nil
		}
		s.readers <- c
	}()
	if err := ctx.Err(); err != nil {
		return classify(err)
	}
	if c == nil {
		var err error
		if c, err = openSession(ctx, s.readConnector, s.queries); err != nil {
			return err
		}
	}
	return fn(c)
}

// openWriter opens the session that writes. Its waiting is done by begin.
func (s *Store) openWriter(ctx context.Context) (*session, error) {
	c, err := openSession(ctx, s.writeConnector, s.queries)
	if err != nil {
		return nil, err
	}
	if err := c.control(ctx, "PRAGMA busy_timeout = 0"); err != nil {
		return nil, errors.Join(classify(err), c.close())
	}
	return c, nil
}
