// Command producer enqueues the webhook deliveries of a directory, as the receiver of the
// webhooks would: the delivery id is the idempotency key, so a delivery that GitHub sends
// twice, or a producer that runs twice, makes one message (rule E1).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	queuebox "github.com/queuebox/queuebox/client/go"
	"github.com/queuebox/queuebox/examples/webhooks/internal/webhook"
)

func main() {
	server := flag.String("server", "127.0.0.1:7420", "address of queuebox-server")
	queue := flag.String("queue", "webhooks", "queue to enqueue to")
	dir := flag.String("dir", "examples/webhooks/testdata", "directory of the deliveries")
	only := flag.String("event", "", "only deliveries of this event")
	limit := flag.Int("limit", 0, "only so many deliveries; 0 takes all")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *server, *queue, *dir, *only, *limit)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "producer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, server, queue, dir, only string, limit int) error {
	deliveries, err := webhook.Load(dir)
	if err != nil {
		return err
	}
	client, err := queuebox.Dial(server)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = client.Close() }()

	fresh, duplicates, bytes := 0, 0, 0
	for _, d := range deliveries {
		if only != "" && d.Event != only {
			continue
		}
		enqueued, err := client.Enqueue(ctx, queue, queuebox.NewMessage{
			Payload:        d.Body,
			ContentType:    d.ContentType,
			IdempotencyKey: d.ID,
			Attributes: map[string]string{
				webhook.AttributeEvent:    d.Event,
				webhook.AttributeDelivery: d.ID,
			},
		})
		if err != nil {
			return fmt.Errorf("enqueue %s: %w", d.File, err)
		}
		if enqueued.Duplicate {
			duplicates++
		} else {
			fresh++
		}
		bytes += len(d.Body)
		if limit > 0 && fresh+duplicates == limit {
			break
		}
	}
	fmt.Fprintf(os.Stdout, "%d deliveries, %d kB: %d new, %d duplicates\n", fresh+duplicates, bytes/1000, fresh, duplicates)
	return nil
}
