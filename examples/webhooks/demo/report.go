package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/queuebox/queuebox/examples/webhooks/internal/webhook"
	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
)

// report collects what the demo saw and what it wanted to see.
type report struct {
	checks   int
	failed   []string
	workers  []string
	byWorker map[string]int
	counts   map[string]int // "event repository" -> completed, over all workers
}

// check notes one expectation; the text says what was expected and what came.
func (r *report) check(ok bool, format string, args ...any) {
	r.checks++
	if !ok {
		r.failed = append(r.failed, fmt.Sprintf(format, args...))
	}
}

// count adds the counts of a worker and returns their sum.
func (r *report) count(worker string, counts map[string]int) int {
	if r.counts == nil {
		r.counts, r.byWorker = map[string]int{}, map[string]int{}
	}
	sum := 0
	for key, n := range counts {
		r.counts[key] += n
		sum += n
	}
	r.workers = append(r.workers, worker)
	r.byWorker[worker] = sum
	return sum
}

// printMessages prints a line for each message, as the server tells it, and compares it with
// what had to become of it.
func (d *demo) printMessages(ctx context.Context) error {
	byID := map[string]webhook.Delivery{}
	for _, delivery := range d.deliveries {
		byID[delivery.ID] = delivery
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "DELIVERY\tEVENT\tREPOSITORY\tOUTCOME\tATTEMPTS\tWORKER\tWHY")
	states := map[string]int{}
	wanted := map[string]int{}
	for _, name := range []string{queue, pausedQueue} {
		all, err := d.messages(ctx, name)
		if err != nil {
			return err
		}
		for _, listed := range all {
			// The list leaves nothing out but the body; the single read is asked as well so
			// that both are seen to agree.
			got, err := d.admin.GetMessage(ctx, &queueboxv1.GetMessageRequest{Queue: name, MessageId: listed.GetMessageId()})
			if err != nil {
				return fmt.Errorf("get message %s: %w", listed.GetMessageId(), err)
			}
			m := got.GetMessage()
			d.report.check(m.GetState() == listed.GetState() && m.GetAttempt() == listed.GetAttempt(),
				"GetMessage and ListMessages agree on %s: %s and %s", m.GetMessageId(), m, listed)
			delivery := byID[m.GetIdempotencyKey()]
			event, err := webhook.Parse(delivery.Event, delivery.ContentType, delivery.Body)
			repository := event.Repository
			if err != nil {
				repository = "?"
			}
			outcome, why := outcomeOf(m)
			fmt.Fprintf(table, "%.8s\t%s\t%s\t%s\t%d\t%s\t%.60s\n", delivery.ID, delivery.Event, repository, outcome, m.GetAttempt(), m.GetWorkerId(), why)
			states[outcome]++

			wantOutcome, wantAttempts, wantCode := expected(delivery)
			if name == pausedQueue {
				wantOutcome, wantAttempts, wantCode = "completed", 2, ""
				d.report.check(m.GetWorkerId() == "worker-B", "worker-B holds the completion of %s: %s", delivery.File, m.GetWorkerId())
			} else if wantOutcome == "completed" {
				wanted[event.Name+" "+event.Repository]++
			}
			d.report.check(outcome == wantOutcome && m.GetAttempt() == wantAttempts && m.GetReasonCode() == wantCode,
				"%s: want %s %q after %d attempts, got %s %q after %d", delivery.File, wantOutcome, wantCode, wantAttempts,
				outcome, m.GetReasonCode(), m.GetAttempt())
			d.report.check(delivery.Event == m.GetAttributes()[webhook.AttributeEvent] && m.GetPayloadBytes() == int64(len(delivery.Body)),
				"%s keeps its attributes and its size", delivery.File)
		}
		want := len(d.deliveries)
		if name == pausedQueue {
			want = 2
		}
		d.report.check(len(all) == want, "%s holds %d messages, there are %d", name, want, len(all))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	d.title("Completed deliveries by repository and event, as the workers counted them")
	d.printCounts(wanted)
	d.printTotals(states)
	return nil
}

// outcomeOf says in words what became of a message.
func outcomeOf(m *queueboxv1.Message) (outcome, why string) {
	switch m.GetState() {
	case queueboxv1.MessageState_MESSAGE_STATE_COMPLETED:
		if m.GetAttempt() > 1 {
			return "completed", m.GetLastError()
		}
		return "completed", ""
	case queueboxv1.MessageState_MESSAGE_STATE_DEAD:
		reason := strings.ToLower(strings.TrimPrefix(m.GetDeadReason().String(), "DEAD_REASON_"))
		return "dead: " + strings.ReplaceAll(reason, "_", " "), m.GetLastError()
	default:
		return strings.ToLower(strings.TrimPrefix(m.GetState().String(), "MESSAGE_STATE_")), m.GetLastError()
	}
}

// printCounts prints the counts of the workers and compares them with the files.
func (d *demo) printCounts(wanted map[string]int) {
	events := map[string][]string{}
	for key, n := range d.report.counts {
		event, repository, _ := strings.Cut(key, " ")
		events[repository] = append(events[repository], fmt.Sprintf("%s %d", event, n))
		d.report.check(n == wanted[key], "%s is counted %d times, it was counted %d times", key, wanted[key], n)
	}
	for key, n := range wanted {
		d.report.check(d.report.counts[key] == n, "%s is counted %d times, it was counted %d times", key, n, d.report.counts[key])
	}
	repositories := make([]string, 0, len(events))
	for repository := range events {
		repositories = append(repositories, repository)
	}
	sort.Strings(repositories)
	for _, repository := range repositories {
		sort.Strings(events[repository])
		fmt.Fprintf(os.Stdout, "%s: %s\n", repository, strings.Join(events[repository], ", "))
	}
}

// printTotals prints the sums.
func (d *demo) printTotals(states map[string]int) {
	d.title("Totals")
	outcomes := make([]string, 0, len(states))
	sum := 0
	for outcome, n := range states {
		outcomes = append(outcomes, outcome)
		sum += n
	}
	sort.Strings(outcomes)
	for i, outcome := range outcomes {
		outcomes[i] = fmt.Sprintf("%d %s", states[outcome], outcome)
	}
	fmt.Fprintf(os.Stdout, "%d messages: %s\n", sum, strings.Join(outcomes, ", "))
	for _, worker := range d.report.workers {
		n := d.report.byWorker[worker]
		fmt.Fprintf(os.Stdout, "%s completed %d\n", worker, n)
		d.report.check(n > 0, "%s completed something", worker)
	}
	doubles, twice := d.downstream.doubles(queue), d.downstream.doubles(pausedQueue)
	fmt.Fprintf(os.Stdout, "%s: %d deliveries had their effect outside twice\n", queue, doubles)
	fmt.Fprintf(os.Stdout, "%s: %d deliveries had their effect outside twice: the paused workers had done their work\n"+
		"already. That is at-least-once; a service that has to act once tells by queue and delivery id.\n", pausedQueue, twice)
	d.report.check(doubles == 0 && twice == 2, "effects outside: none twice in %s, it is %d; 2 in %s, it is %d", queue, doubles, pausedQueue, twice)
}

// verdict ends the demo.
func (r *report) verdict(d *demo) error {
	if len(r.failed) > 0 {
		return errors.New("not as it has to be:\n  " + strings.Join(r.failed, "\n  "))
	}
	d.title("All %d checks hold", r.checks)
	return nil
}
