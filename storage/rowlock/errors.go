package rowlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/queuebox/queuebox/storage"
)

// ErrBusy says that the lock that serialises the claims of a queue was not had in time.
var ErrBusy = fmt.Errorf("%w: other claims of the queue are running", storage.ErrLocked)

// classify puts the sentinel of package storage in front of an error. unknown says that
// the transaction may have been committed.
func (s *Store) classify(what string, err error, unknown bool) error {
	if err == nil {
		return nil
	}
	e := s.engine.Errors
	plain := err
	if !isSentinel(err) {
		plain = s.plain(err)
	}
	wrap := func(sentinel error) error {
		return fmt.Errorf("%s: %s: %w: %w", s.engine.Name, what, sentinel, plain)
	}
	_, connecting := errors.AsType[*connectError](err)
	switch {
	case unknown:
		return wrap(storage.ErrOutcomeUnknown)
	case isSentinel(err):
		return fmt.Errorf("%s: %s: %w", s.engine.Name, what, err)
	case e.LockTimeout(err):
		return wrap(storage.ErrLocked)
	case e.Schema(err):
		return wrap(storage.ErrSchema)
	case connecting, s.broken(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, errAgain), e.Again(err), e.Unavailable(err):
		return wrap(storage.ErrUnavailable)
	case e.RolledBack(err):
		return wrap(storage.ErrRefused)
	default:
		return fmt.Errorf("%s: %s: %w", s.engine.Name, what, plain)
	}
}

func (s *Store) plain(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return context.Canceled
	default:
		return s.engine.Errors.Plain(err)
	}
}

func isSentinel(err error) bool {
	for _, sentinel := range []error{
		storage.ErrUnavailable, storage.ErrOutcomeUnknown, storage.ErrQueueNotFound, storage.ErrQueueExists,
		storage.ErrQueueLimit, storage.ErrVersionMismatch, storage.ErrMessageNotFound, storage.ErrSchema,
		storage.ErrUnsafeDurability, storage.ErrNotSupported, storage.ErrRefused,
	} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

func isNetError(err error) bool {
	_, ok := errors.AsType[net.Error](err)
	return ok || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}
