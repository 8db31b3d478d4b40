package drive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// natsShape publishes to a work queue of JetStream and pulls from it. Completion is a double
// ack: the caller waits until the server has confirmed each acknowledgement.
type natsShape struct {
	spec   Spec
	conn   *nats.Conn
	stream nats.JetStreamContext
	bodies *bodies
}

const (
	natsCallers = 8
	natsBatch   = 100
	natsSubject = "bench"
	natsStream  = "BENCH"
	// natsPatience bounds a call; the window ends long before.
	natsPatience = 30 * time.Second
)

func (n natsShape) open(_ context.Context, s Spec) (load, error) {
	n.spec, n.bodies = s, newBodies(s.Payload, nil)
	var err error
	if n.conn, err = nats.Connect(s.Server); err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	n.stream, err = n.conn.JetStream(nats.PublishAsyncMaxPending(natsCallers*natsBatch*2), nats.MaxWait(natsPatience))
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	// Both are there already in all windows but the first; then these change nothing.
	_, err = n.stream.AddStream(&nats.StreamConfig{Name: natsStream, Subjects: []string{natsSubject}, Storage: nats.FileStorage, Retention: nats.WorkQueuePolicy})
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	_, err = n.stream.AddConsumer(natsStream, &nats.ConsumerConfig{Durable: natsSubject, AckPolicy: nats.AckExplicitPolicy, AckWait: natsPatience, MaxAckPending: 100_000, MaxWaiting: 512})
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	return &n, nil
}

func (n *natsShape) close() { n.conn.Close() }

func (n *natsShape) fill(_ context.Context, count int) error {
	for ; count > 0; count -= natsBatch {
		if err := n.publish(min(count, natsBatch)); err != nil {
			return err
		}
	}
	return nil
}

// publish sends a batch and waits until all of it is acknowledged.
func (n *natsShape) publish(count int) error {
	futures := make([]nats.PubAckFuture, count)
	for i := range futures {
		var err error
		if futures[i], err = n.stream.PublishAsync(natsSubject, n.bodies.bytes()); err != nil {
			return fmt.Errorf("nats: publish: %w", err)
		}
	}
	for _, f := range futures {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			return fmt.Errorf("nats: publish: %w", err)
		}
	}
	return nil
}

func (n *natsShape) cycle(ctx context.Context, m *Meter) error {
	return crowd(ctx, natsCallers, func(ctx context.Context, _ int) error {
		pull, err := n.stream.PullSubscribe(natsSubject, natsSubject, nats.Bind(natsStream, natsSubject))
		if err != nil {
			return fmt.Errorf("nats: subscribe: %w", err)
		}
		// The confirmations of all acknowledgements of a batch come to one inbox, so that they
		// are waited for together.
		inbox := nats.NewInbox()
		confirmed, err := n.conn.SubscribeSync(inbox)
		if err != nil {
			return fmt.Errorf("nats: subscribe: %w", err)
		}
		for ctx.Err() == nil {
			start := time.Now()
			if err := n.publish(natsBatch); err != nil {
				return err
			}
			m.Took(StepEnqueue, start)
			for left := natsBatch; left > 0 && ctx.Err() == nil; {
				start = time.Now()
				messages, err := pull.Fetch(left, nats.MaxWait(natsPatience))
				if err != nil && !errors.Is(err, nats.ErrTimeout) {
					return fmt.Errorf("nats: fetch: %w", err)
				}
				m.Took(StepClaim, start)
				start = time.Now()
				for _, message := range messages {
					if err := n.conn.PublishRequest(message.Reply, inbox, []byte("+ACK")); err != nil {
						return fmt.Errorf("nats: ack: %w", err)
					}
				}
				for range messages {
					if _, err := confirmed.NextMsg(natsPatience); err != nil {
						return fmt.Errorf("nats: confirmation of an ack: %w", err)
					}
				}
				m.Took(StepComplete, start)
				m.Done(len(messages))
				left -= len(messages)
			}
		}
		return nil
	})
}
