package ops

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// batchFlags are those of the commands that make one call after the other.
type batchFlags struct {
	DryRun bool  `help:"Only count what would be done."`
	Max    int64 `default:"0" placeholder:"N" help:"Most messages to do it to. 0 means all that match when the command starts."`
	Yes    bool  `short:"y" help:"Do not ask."`
}

// batches is a command that makes one call after the other.
type batches struct {
	verb, done string // "redrive", "redriven"
	queue      string
	flags      *batchFlags
	// mustConfirm: without a person to ask, nothing is done unless --yes is given.
	mustConfirm bool
	// step is one call. It is given the most messages that it may do it to.
	step func(ctx context.Context, most int32, dryRun bool) (n int64, more bool, err error)
	// report prints the sum as an answer.
	report func(n int64, more bool) error
}

const (
	// A call is asked for this much at first, for twice as much after one that was quick, and
	// for half after one that was slow: each call looks for its messages from the oldest on,
	// so many small ones would look over the same messages again and again. The server may do
	// less than it is asked for.
	firstBatch, largestBatch = 1000, 1 << 20
	quickBatch, slowBatch    = 500 * time.Millisecond, 4 * time.Second
	// batchTries is how often one call is made while the server is away, and how often a call
	// may find that all that is left is busy.
	batchTries = 8
)

func (b *batches) check() error {
	if b.flags.Max < 0 {
		return UsageError{fmt.Errorf("--max: want 0 or more, got %d", b.flags.Max)}
	}
	return nil
}

// run counts, asks, and then goes on until nothing matches or as many are done as were wanted.
func (b *batches) run(ctx context.Context, s *session) error {
	total, exact, err := b.count(ctx)
	if err != nil {
		return about(b.queue, err)
	}
	if b.flags.DryRun {
		if s.json {
			return b.report(total, !exact)
		}
		return s.say("%s%s of queue %s would be %s", atLeast(exact), many(total, "message"), harmless(b.queue), b.done)
	}
	if total == 0 && exact {
		return b.end(s, 0, false)
	}
	if err := b.confirm(s, total, exact); err != nil {
		return err
	}
	p := newProgress(s.Stderr, s.Bar, b.done, total)
	if !exact {
		p.total = -1
	}
	// What is redriven may die again and match again, so the end is not left to that alone.
	most := b.flags.Max
	if exact && (most == 0 || most > total) {
		most = total
	}
	more, err := b.loop(ctx, s, p, most)
	p.end()
	if err != nil {
		if p.count > 0 && s.json {
			err = errors.Join(b.report(p.count, true), err)
		}
		return fmt.Errorf("%s: %w; %s %s %s before", b.verb, err, many(p.count, "message"), wasOrWere(p.count), b.done)
	}
	return b.end(s, p.count, more)
}

// count asks how many match, at most as many as are wanted.
func (b *batches) count(ctx context.Context) (n int64, exact bool, err error) {
	n, more, err := b.step(ctx, int32(min(b.flags.Max, 1<<31-1)), true)
	return n, !more || (b.flags.Max > 0 && n >= b.flags.Max), err
}

func atLeast(exact bool) string {
	if exact {
		return ""
	}
	return "at least "
}

func (b *batches) confirm(s *session, total int64, exact bool) error {
	if b.flags.Yes {
		return nil
	}
	if !s.Ask {
		if b.mustConfirm {
			return UsageError{fmt.Errorf("%s: this would be done to %s%s of queue %q and nobody is there to confirm it; pass --yes, or --dry-run to look",
				b.verb, atLeast(exact), many(total, "message"), b.queue)}
		}
		return nil
	}
	s.noteInline("%s %s%s of queue %s? [y/N] ", b.verb, atLeast(exact), many(total, "message"), harmless(b.queue))
	answer, err := bufio.NewReader(s.Stdin).ReadString('\n')
	if err != nil && answer == "" {
		return fmt.Errorf("%s: nothing was done: no answer", b.verb)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return fmt.Errorf("%s: nothing was done", b.verb)
}

// loop makes the calls. A call that was begun is waited for, also after an interrupt, so that
// the number of what is done is right.
func (b *batches) loop(ctx context.Context, s *session, p *progress, most int64) (more bool, err error) {
	size := int64(firstBatch)
	for idle := 0; ; {
		if ctx.Err() != nil {
			return true, errors.New("interrupted; run the command again to go on")
		}
		want := size
		if most > 0 {
			want = min(want, most-p.count)
		}
		begun := time.Now()
		n, more, err := b.patiently(ctx, s, int32(want))
		if err != nil {
			return true, err
		}
		switch took := time.Since(begun); {
		case took < quickBatch:
			size = min(2*size, largestBatch)
		case took > slowBatch:
			size = max(size/2, firstBatch)
		}
		if n > 0 {
			p.add(n)
			idle = 0
		}
		if !more || (most > 0 && p.count >= most) {
			return more, nil
		}
		if n == 0 {
			// Others hold what is left, for a moment or for longer.
			if idle++; idle >= batchTries {
				return true, errors.New("what is left is held by other transactions; run the command again")
			}
			s.pause(ctx, idle)
		}
	}
}

// patiently makes one call, again where the server is away for a moment. A batch that is
// repeated goes on where the first one ended, whether or not that is known.
func (b *batches) patiently(ctx context.Context, s *session, most int32) (n int64, more bool, err error) {
	for try := 1; ; try++ {
		n, more, err = b.step(context.WithoutCancel(ctx), most, false)
		lost, ok := errors.AsType[*rpcError](err)
		if !ok || !transient(lost.code) || try == batchTries || ctx.Err() != nil {
			return n, more, err
		}
		s.note("%s; trying again", lost)
		s.pause(ctx, try)
	}
}

func (b *batches) end(s *session, n int64, more bool) error {
	if s.json {
		return b.report(n, more)
	}
	if err := s.say("%s of queue %s %s %s", many(n, "message"), harmless(b.queue), wasOrWere(n), b.done); err != nil {
		return err
	}
	if more {
		s.note("more match; run the command again for these")
	}
	return nil
}

var errNoFilter = UsageError{errors.New("give a filter, such as --error-contains=TEXT or --since=2h")}
