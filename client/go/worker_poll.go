package queuebox

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
)

// poll keeps the slots filled by single claims until ctx ends, an error comes that will not go
// away, or the time is over; a zero time never is.
func (r *run) poll(ctx context.Context, until time.Time) error {
	pause := pauses{base: 100 * time.Millisecond, limit: 5 * time.Second}
	for until.IsZero() || now().Before(until) {
		free := r.free(ctx)
		if free == 0 {
			return nil
		}
		handles, err := r.client.Claim(ctx, ClaimOptions{
			Queue:    r.config.Queue,
			Max:      free,
			Lease:    r.config.Lease,
			Wait:     longestPoll,
			WorkerID: r.config.WorkerID,
			MaxBytes: r.config.MaxBytes,
		})
		for range free - len(handles) {
			<-r.slots
		}
		for i, h := range handles {
			r.begin(ctx, h, i < free || r.extraSlot(ctx))
		}
		switch {
		case err == nil:
			pause.failures = 0
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end of ctx is how a run is stopped
		case hopeless(err):
			return err
		default:
			r.logger.ErrorContext(ctx, "claim failed", "error", err)
			if r.client.sleep(ctx, pause.next(0)) != nil {
				return nil //nolint:nilerr // the end of ctx is how a run is stopped
			}
		}
	}
	return nil
}

// free waits for a slot and takes all there are, up to what one claim may ask for; 0 means that
// ctx ended.
func (r *run) free(ctx context.Context) int {
	select {
	case <-ctx.Done():
		return 0
	case r.slots <- struct{}{}:
	}
	if ctx.Err() != nil {
		<-r.slots
		return 0
	}
	for n := 1; n < maxClaim; n++ {
		select {
		case r.slots <- struct{}{}:
		default:
			return n
		}
	}
	return maxClaim
}

// hopeless tells errors of a claim that repeating cannot mend.
func hopeless(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return errors.Is(err, ErrClosed)
	}
	switch e.Code() {
	case codes.InvalidArgument, codes.Unimplemented:
		return true
	case codes.ResourceExhausted:
		return false
	default:
		// Without a reason it is not the server that speaks: a source of tokens that has none
		// for a moment, a proxy that is being configured.
		return e.refused() && e.Reason != ""
	}
}

// extraSlot waits for a slot for a message that was not asked for, from a server that gives more
// than it may; false where the worker stops first.
func (r *run) extraSlot(ctx context.Context) bool {
	select {
	case r.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
