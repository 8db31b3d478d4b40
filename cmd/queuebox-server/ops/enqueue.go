package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

type enqueueCmd struct {
	Queue          string            `arg:"" complete:"queue" help:"Name of the queue."`
	Payload        *string           `xor:"body" placeholder:"TEXT" help:"The body. Without it and --payload-file it is read from standard input."`
	PayloadFile    string            `xor:"body" placeholder:"PATH" help:"File that holds the body; - is standard input."`
	IdempotencyKey string            `placeholder:"KEY" help:"Makes the command safe to repeat: one message is made for a key."`
	ContentType    string            `placeholder:"TYPE" help:"Media type of the body."`
	Attribute      map[string]string `mapsep:"none" placeholder:"NAME=VALUE" help:"A header; the flag can be repeated."`
	OrderingKey    string            `placeholder:"KEY" help:"Messages of one key are claimed one at a time, in order."`
	Priority       int32             `placeholder:"N" help:"A larger one runs sooner."`
	Delay          time.Duration     `xor:"when" placeholder:"DURATION" help:"Time until it can be claimed."`
	At             *point            `xor:"when" placeholder:"TIME" help:"Time at which it can be claimed, such as 2026-11-30T07:00:00Z."`
	Expire         *point            `placeholder:"TIME" help:"When it is no longer worth running: a time, or a distance such as 2h."`
	MaxAttempts    int32             `placeholder:"N" help:"Attempts after which it is dead. 0 takes the setting of the queue."`
	connection
}

// Run enqueues one message.
func (c *enqueueCmd) Run(e *Env) error {
	delay, err := milliseconds("delay", c.Delay)
	if err != nil {
		return err
	}
	payload, err := c.body(e)
	if err != nil {
		return err
	}
	return c.with(e, func(ctx context.Context, s *session) error {
		var now time.Time
		if c.At.relative() || c.Expire.relative() {
			if now, err = s.databaseTime(ctx); err != nil {
				return err
			}
		}
		resp, err := call(ctx, s, s.producer.Enqueue, &queueboxv1.EnqueueRequest{
			Queue: c.Queue, Payload: payload, ContentType: c.ContentType, Attributes: c.Attribute, IdempotencyKey: c.IdempotencyKey,
			OrderingKey: c.OrderingKey, Priority: c.Priority, DelayMs: delay, AvailableTime: c.At.ahead(now), ExpireTime: c.Expire.ahead(now),
			MaxAttempts: c.MaxAttempts,
		})
		if err != nil {
			return about(c.Queue, err)
		}
		if s.json {
			return s.print(resp)
		}
		if resp.GetDuplicate() {
			return s.say("%s was there already and is %s", resp.GetMessageId(), stateName(resp.GetState()))
		}
		return s.say("%s", resp.GetMessageId())
	})
}

// maxBody is more than any server takes, so that the server is the one that says the limit.
const maxBody = 34 << 20

func (c *enqueueCmd) body(e *Env) ([]byte, error) {
	switch {
	case c.Payload != nil:
		return []byte(*c.Payload), nil
	case c.PayloadFile == "-" || (c.PayloadFile == "" && e.Piped):
		return readBody("standard input", e.Stdin)
	case c.PayloadFile == "":
		return nil, UsageError{errors.New("enqueue: give the body by --payload or --payload-file, or pipe it in")}
	}
	file, err := os.Open(c.PayloadFile)
	if err != nil {
		return nil, UsageError{fmt.Errorf("--payload-file: %w", err)}
	}
	defer func() { _ = file.Close() }()
	return readBody(c.PayloadFile, file)
}

func readBody(name string, r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(b) > maxBody {
		return nil, UsageError{fmt.Errorf("%s: holds more than 32 MiB, which no server takes; store it elsewhere and enqueue a reference", name)}
	}
	return b, nil
}
