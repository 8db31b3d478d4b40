package rowlock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// AdvisedError is an error that we found ourselves, and what to do about it.
type AdvisedError struct {
	Err  error
	Text string
}

func (e *AdvisedError) Error() string { return e.Err.Error() + "; " + e.Text }
func (e *AdvisedError) Unwrap() error { return e.Err }

// Advice is what to do.
func (e *AdvisedError) Advice() string { return e.Text }

// ConnectCause says why a database did not answer. It is told by the types of the errors,
// so that nothing of their texts, which name hosts and users, comes along. certificate says what
// to do about one that is not accepted.
func ConnectCause(err error, certificate string) error {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		switch {
		case dns.IsNotFound:
			return errors.New("connection not made: no such host")
		case dns.IsTimeout:
			return errors.New("connection not made: timeout of the name service")
		}
		return errors.New("connection not made: the name service failed")
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("connection not made: %w", syscall.ECONNREFUSED)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &AdvisedError{Err: errors.New("connection not made: the certificate of the database is not accepted"), Text: certificate}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the database did not answer in time: %w", context.DeadlineExceeded)
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return errors.New("the database did not answer in time")
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("connection broken: %w", op.Err)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("connection closed by the other side: %w", io.ErrUnexpectedEOF)
	}
	return err
}
