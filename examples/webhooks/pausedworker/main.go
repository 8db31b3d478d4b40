// Command pausedworker claims one message, works on it, and completes it, without the
// protection of the Go client: it speaks to the generated stubs and never looks at the
// clock. The demo stops this process in the middle of its work, past its lease, and wakes it
// again, so that its Complete really reaches the server too late. With -client it does the
// same through the Go client, which notices by itself.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	queuebox "github.com/queuebox/queuebox/client/go"
	"github.com/queuebox/queuebox/examples/webhooks/internal/webhook"
	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

func main() {
	var o options
	flag.StringVar(&o.server, "server", "127.0.0.1:7420", "address of queuebox-server")
	flag.StringVar(&o.queue, "queue", "webhooks", "queue to claim from")
	flag.StringVar(&o.workerID, "worker-id", "paused-worker", "name of this worker")
	flag.StringVar(&o.downstream, "downstream", "", "URL that the delivery is posted to")
	flag.DurationVar(&o.lease, "lease", 1500*time.Millisecond, "lease of the claim")
	useClient := flag.Bool("client", false, "use the Go client")
	flag.Parse()

	o.out = os.Stdout
	work := o.runStub
	if *useClient {
		work = o.runClient
	}
	if err := work(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "pausedworker:", err)
		os.Exit(1)
	}
}

type options struct {
	server, queue, workerID, downstream string
	lease                               time.Duration
	out                                 io.Writer
}

func (o options) say(format string, args ...any) { fmt.Fprintf(o.out, format+"\n", args...) }

// post is the work. Its time is not limited: a stopped process does not know that it stood
// still, and neither does this one.
func (o options) post(ctx context.Context, attributes map[string]string, body []byte) error {
	d := webhook.Downstream{URL: o.downstream, Client: &http.Client{}}
	return d.Post(ctx, attributes[webhook.AttributeDelivery], attributes[webhook.AttributeEvent], body)
}

// runStub claims, works and completes by the stubs alone.
func (o options) runStub(ctx context.Context) error {
	conn, err := grpc.NewClient(o.server, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close() }()
	api := queueboxv1.NewWorkerServiceClient(conn)

	claim, err := api.Claim(ctx, &queueboxv1.ClaimRequest{
		Queue: o.queue, WorkerId: o.workerID, ClaimId: uuid.NewString(), LeaseMs: o.lease.Milliseconds(), WaitMs: 10_000,
	})
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	if len(claim.GetMessages()) == 0 {
		return fmt.Errorf("nothing to claim: %s", claim.GetEmptyReason())
	}
	claimed := claim.GetMessages()[0]
	m := claimed.GetMessage()
	o.say("claimed %s, attempt %d, lease %d ms", m.GetMessageId(), m.GetAttempt(), claimed.GetLeaseRemainingMs())

	if err := o.post(ctx, m.GetAttributes(), m.GetPayload()); err != nil {
		return err
	}
	o.say("work done, sending Complete")
	done, err := api.Complete(ctx, &queueboxv1.CompleteRequest{
		Queue: o.queue, MessageId: m.GetMessageId(), ClaimToken: claimed.GetClaimToken(),
	})
	if err != nil {
		o.say("Complete refused: %s", explain(err))
		o.say("so this worker rolls back what it did and goes on with something else")
		return nil
	}
	o.say("Complete accepted at %s", done.GetCompleteTime().AsTime().Format(time.TimeOnly))
	return nil
}

// explain shows the answer of the server as it came: the gRPC code, and the ErrorInfo that
// programs read.
func explain(err error) string {
	s := status.Convert(err)
	var b strings.Builder
	fmt.Fprintf(&b, "code %s", s.Code())
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			fmt.Fprintf(&b, ", reason %s, cause %s, domain %s", info.GetReason(), info.GetMetadata()["cause"], info.GetDomain())
		}
	}
	fmt.Fprintf(&b, ": %q", s.Message())
	return b.String()
}

// runClient does the same with a handle, whose context ends when the lease does.
//
//nolint:contextcheck // the context of the handle comes from that of the claim
func (o options) runClient(ctx context.Context) error {
	client, err := queuebox.Dial(o.server)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = client.Close() }()
	handles, err := client.Claim(ctx, queuebox.ClaimOptions{
		Queue: o.queue, WorkerID: o.workerID, Max: 1, Lease: o.lease, Wait: 10 * time.Second,
	})
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	if len(handles) == 0 {
		return errors.New("nothing to claim")
	}
	h := handles[0]
	held := h.Context() // ends with ErrClaimLost as its cause when the claim does
	o.say("claimed %s, attempt %d, renewed by itself from now on", h.Message().ID, h.Message().Attempt)

	if err := o.post(held, h.Message().Attributes, h.Message().Payload); err != nil {
		if cause := context.Cause(held); errors.Is(cause, queuebox.ErrClaimLost) {
			o.say("no Complete is sent: %v", cause)
			return nil
		}
		return err
	}
	if _, err := h.Complete(ctx); err != nil {
		if e, ok := errors.AsType[*queuebox.Error](err); ok && e.Cause == queuebox.CauseLocalDeadline {
			o.say("no Complete is sent: %v", err)
			return nil
		}
		o.say("Complete refused: %v", err)
		return nil
	}
	o.say("Complete accepted")
	return nil
}
