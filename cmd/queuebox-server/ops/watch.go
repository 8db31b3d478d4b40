package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

type watchCmd struct {
	Queue []string      `arg:"" optional:"" complete:"queue" help:"Names of queues; all where none is given."`
	Every time.Duration `default:"1s" placeholder:"DURATION" help:"Time between two looks. Default ${default}. The server counts a queue about every four seconds."`
	Count int           `default:"0" placeholder:"N" help:"End after so many looks. 0 goes on until it is interrupted."`
	connection
}

// headEvery is after how many rows the head of the table comes again, as it has scrolled away.
const headEvery = 40

// Run prints the counts again and again. A server that is away for a while is told and does
// not end it; an interrupt does, and is no error.
func (c *watchCmd) Run(e *Env) error {
	if c.Every < 10*time.Millisecond || c.Count < 0 {
		return UsageError{errors.New("watch: want --every=10ms or more and --count=0 or more")}
	}
	return c.with(e, func(ctx context.Context, s *session) error {
		head := append([]string{"TIME"}, statsHead...)
		t := newTable(s.Stdout, slices.Clone(head)...)
		rows, away := 0, false
		for look := 1; ; look++ {
			err := s.eachStats(ctx, c.Queue, func(queue string, st *queueboxv1.GetQueueStatsResponse) error {
				if s.json {
					return s.printOf(queue, st)
				}
				if rows++; rows%headEvery == 0 {
					t.add(slices.Clone(head)...)
				}
				t.add(append([]string{st.GetServerTime().AsTime().Format(time.TimeOnly)}, statsRow(queue, st)...)...)
				return nil
			})
			switch lost, ok := errors.AsType[*rpcError](err); {
			case ctx.Err() != nil:
				return nil //nolint:nilerr // an interrupt is how it ends
			case ok && transient(lost.code) && (away || look > 1):
				if !away {
					s.note("%s; going on", lost)
				}
				away = true
			case err != nil:
				return err
			case away:
				s.note("%s answers again", s.server)
				away = false
			}
			if !s.json {
				if err := t.flush(); err != nil {
					return err
				}
			}
			if look == c.Count {
				if away {
					return fmt.Errorf("watch: %w", err)
				}
				return nil
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(c.Every):
			}
		}
	})
}

// transient tells whether the same call may succeed in a moment.
func transient(code codes.Code) bool {
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}
