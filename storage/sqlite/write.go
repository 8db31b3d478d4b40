package sqlite

import (
	"context"
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
// statement on. Where fn fails, or says so, it is rolled back and nothing has changed.
//
// fn gets a ctx that does not end, for the many short statements of a batch: watching a
// ctx costs the driver a goroutine a statement. A statement that may take long, or a
// loop over many, looks at the ctx of the call itself.
func (s *Store) write(ctx context.Context, noun string, fn func(quiet context.Context, c *session) (verdict, error)) error {
	quiet := context.WithoutCancel(ctx)
	err := s.withWriter(ctx, func(c *session) error {
		if err := s.begin(ctx, c); err != nil {
			// Where ctx ended, the driver may say so although BEGIN went through.
			c.broken = c.broken || ctx.Err() != nil
			return classify(err)
		}
		v, err := fn(quiet, c)
		if err == nil {
			err = ctx.Err()
		}
		// What would be committed to a file that nobody opens any more is not stored (E10).
		if err == nil && v == commit {
			err = s.atItsPath()
		}
		if err != nil || v == rollback {
			c.rollback(quiet)
			return classify(err)
		}
		return c.commit(ctx)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", noun, err)
	}
	return nil
}

// begin takes the write lock of the file, waiting for another process for a bounded time.
// SQLite's own wait sleeps 100 ms between two looks: beside a process that writes without
// a break it finds the lock free too seldom, and gave up after 5 s under load. So the
// writer looks by itself, every few milliseconds.
func (s *Store) begin(ctx context.Context, c *session) error {
	_, err := c.conn.ExecContext(ctx, "BEGIN IMMEDIATE")
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
		if _, err = c.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); !isBusy(err) {
			return err
		}
	}
}

// rollback ends the transaction. After some errors SQLite has ended it by itself and
// this fails; a fresh connection is cheaper than telling these cases apart.
func (c *session) rollback(quiet context.Context) {
	if _, err := c.conn.ExecContext(quiet, "ROLLBACK"); err != nil {
		c.broken = true
	}
}

// commit makes the transaction durable. The commit itself is never interrupted: it would
// say less than one that ran to its end. A caller whose ctx ends meanwhile is told that
// the outcome is unknown (D8), and so is one whose commit failed, since what it wrote to
// the log may be found there after a crash.
func (c *session) commit(ctx context.Context) error {
	quiet := context.WithoutCancel(ctx)
	end := func() error {
		_, err := c.conn.ExecContext(quiet, "COMMIT")
		if err != nil {
			c.rollback(quiet)
			return fmt.Errorf("%w: commit: %w", storage.ErrOutcomeUnknown, err)
		}
		return nil
	}
	if ctx.Done() == nil {
		return end()
	}
	done := make(chan error, 1)
	go func() { done <- end() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		c.committing = done
		return fmt.Errorf("%w: commit: %w", storage.ErrOutcomeUnknown, ctx.Err())
	}
}

// read runs fn on a snapshot of the file, beside the writer.
func (s *Store) read(ctx context.Context, noun string, fn func(c *session) error) error {
	err := s.withSession(ctx, s.readers, func(c *session) error {
		if _, err := c.conn.ExecContext(ctx, "BEGIN"); err != nil {
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

// withWriter runs fn while no other call of this process writes.
func (s *Store) withWriter(ctx context.Context, fn func(c *session) error) error {
	return s.withSession(ctx, s.writer, fn)
}

// withSession takes a session from the pool, opening it where there is none yet, and
// puts it back.
func (s *Store) withSession(ctx context.Context, pool chan *session, fn func(c *session) error) error {
	s.open.RLock()
	if s.closed {
		s.open.RUnlock()
		return errClosed
	}
	var c *session
	select {
	case c = <-pool:
	case <-ctx.Done():
		s.open.RUnlock()
		return classify(ctx.Err())
	}
	release := func() {
		if c != nil && c.broken {
			if err := c.close(); err != nil {
				s.log.WarnContext(ctx, "close of a broken connection", "error", err)
			}
			c = nil
		}
		pool <- c
		s.open.RUnlock()
	}
	if err := ctx.Err(); err != nil {
		release()
		return classify(err)
	}
	if c == nil {
		db := s.readDB
		if pool == s.writer {
			db = s.writeDB
		}
		var err error
		if c, err = openSession(ctx, db, s.queries); err != nil {
			release()
			return err
		}
		if pool == s.writer {
			// The waiting is done by begin.
			if _, err := c.conn.ExecContext(ctx, "PRAGMA busy_timeout = 0"); err != nil {
				c.broken = true
				release()
				return classify(err)
			}
		}
	}
	err := fn(c)
	if c.committing == nil {
		release()
		return err
	}
	go func() {
		if err := <-c.committing; err != nil {
			s.log.WarnContext(context.WithoutCancel(ctx), "commit without a caller", "error", err)
		}
		c.committing = nil
		release()
	}()
	return err
}
