package queuebox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	queuebox "github.com/queuebox/queuebox/client/go"
)

func Example() {
	c, err := queuebox.Dial("127.0.0.1:7420")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	// The key makes the enqueue safe to repeat.
	_, err = c.Enqueue(ctx, "mail", queuebox.NewMessage{Payload: []byte("hello"), IdempotencyKey: "order-17"})
	if err != nil {
		log.Print(err)
		return
	}

	w := queuebox.NewWorker(c, queuebox.WorkerConfig{Queue: "mail", Concurrency: 10, StopTimeout: 20 * time.Second})
	err = w.Run(ctx, func(ctx context.Context, h *queuebox.Handle) error {
		m := h.Message()
		if len(m.Payload) == 0 {
			return queuebox.Reject("EMPTY", errors.New("no body")) // never again: set aside
		}
		// ctx ends when the claim is lost: stop then, somebody else has the message.
		return send(ctx, m.ID, m.Payload)
	})
	if err != nil {
		log.Print(err)
	}
}

func ExampleClient_Claim() {
	c, err := queuebox.Dial("127.0.0.1:7420")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx := context.Background()

	handles, err := c.Claim(ctx, queuebox.ClaimOptions{Queue: "mail", Max: 10, Wait: queuebox.WaitForever})
	if err != nil {
		log.Print(err)
		return
	}
	for _, h := range handles {
		err := send(h.Context(), h.Message().ID, h.Message().Payload)
		if err == nil {
			_, err = h.Complete(ctx)
		} else {
			_, err = h.Retry(ctx, queuebox.RetryOptions{Delay: time.Minute, Error: err.Error()})
		}
		if errors.Is(err, queuebox.ErrClaimLost) {
			fmt.Println("somebody else has", h.Message().ID)
		}
	}
}

func ExampleRetryAfter() {
	handler := func(ctx context.Context, h *queuebox.Handle) error {
		if err := send(ctx, h.Message().ID, h.Message().Payload); err != nil {
			return queuebox.RetryAfter(err, 5*time.Minute)
		}
		return nil
	}
	_ = handler
}

// send stands for the work, made idempotent by the identifier.
func send(context.Context, string, []byte) error { return nil }
