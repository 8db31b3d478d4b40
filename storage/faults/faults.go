// Package faults is a [storage.Store] around another one that breaks on purpose.
// Tests use it to see what a caller does when the database is away, when the
// answer to a commit is lost, or when a call is slow. It never reaches a binary.
//
// Nothing fails until a test says so:
//
//	s := faults.Wrap(inner)
//	s.Inject(faults.Settle, faults.Fault{Lose: true, Times: 1})
//
// makes the next Settle do its work and then answer
// [storage.ErrOutcomeUnknown], as a connection does that broke during COMMIT.
package faults

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// Method names a method of [storage.Store].
type Method string

// The methods that can be broken. [Any] stands for all of them; a fault of the
// method itself goes first.
const (
	Any          Method = "any"
	Enqueue      Method = "enqueue"
	Claim        Method = "claim"
	GiveBack     Method = "give back"
	FirstReady   Method = "first ready"
	Renew        Method = "renew"
	Settle       Method = "settle"
	Look         Method = "look"
	Notify       Method = "notify"
	Listen       Method = "listen"
	Now          Method = "now"
	Ready        Method = "ready"
	Maintain     Method = "maintain"
	CreateQueue  Method = "create queue"
	GetQueue     Method = "get queue"
	GetQueueByID Method = "get queue by id"
	ListQueues   Method = "list queues"
	UpdateQueue  Method = "update queue"
	SetPaused    Method = "set paused"
	QueueStats   Method = "queue stats"
	StoredStats  Method = "stored stats"
	Count        Method = "count"
	Blocked      Method = "blocked"
	GetMessage   Method = "get message"
	ListMessages Method = "list messages"
	Sweep        Method = "sweep"
	Retain       Method = "retain"
	Cancel       Method = "cancel"
	SweepKeys    Method = "sweep keys"
	Explain      Method = "explain"
	Revoke       Method = "revoke"
	Redrive      Method = "redrive"
	Purge        Method = "purge"
	Place        Method = "place"
	Finish       Method = "finish"
)

// Fault is what happens to a call. The parts are applied in the order of the
// fields; the zero Fault changes nothing.
type Fault struct {
	// After lets that many calls pass first.
	After int
	// Times is the number of calls that it strikes; 0 strikes until it is cleared.
	Times int
	// Delay waits before the real call, or until the ctx of the call ends.
	Delay time.Duration
	// Hang waits until the ctx of the call ends and makes no real call. The answer
	// wraps ErrUnavailable and the cause of the ctx.
	Hang bool
	// Refuse answers ErrUnavailable and makes no real call: nothing changed.
	Refuse bool
	// Err, where set, takes the place of ErrUnavailable in Refuse and makes it happen.
	Err error
	// DelayAfter waits after the real call, or until the ctx of the call ends.
	DelayAfter time.Duration
	// Lose makes the real call, throws its answer away and answers ErrOutcomeUnknown:
	// what the call did, it did.
	Lose bool
	// Cut makes no real call and answers ErrOutcomeUnknown: the other half of the same
	// uncertainty, which no caller can tell from Lose.
	Cut bool
	// Strike, where set, is called at the start of each call that the fault strikes, so
	// that a test need not sleep to know that a call has arrived.
	Strike func()
}

// Store breaks the calls of the store inside it. All methods may be called at the
// same time.
type Store struct {
	inner storage.Store

	mu     sync.Mutex
	faults map[Method]*armed
	calls  map[Method]int
}

type armed struct {
	Fault

	passed int
	struck int
}

// Wrap returns a store that passes every call on until a fault is injected.
func Wrap(inner storage.Store) *Store {
	return &Store{inner: inner, faults: map[Method]*armed{}, calls: map[Method]int{}}
}

// Inject arms a fault for a method, in place of the one that was armed before.
func (s *Store) Inject(m Method, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[m] = &armed{Fault: f}
}

// Clear takes away the faults of the methods, or all where none is named. Calls
// that hang or wait already are not freed.
func (s *Store) Clear(methods ...Method) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(methods) == 0 {
		clear(s.faults)
		return
	}
	for _, m := range methods {
		delete(s.faults, m)
	}
}

// Calls returns how often a method was called, struck or not; with [Any], how often
// any was.
func (s *Store) Calls(m Method) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[m]
}

// pick counts the call and returns the fault that strikes it.
func (s *Store) pick(m Method) (Fault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[m]++
	s.calls[Any]++
	for _, name := range []Method{m, Any} {
		a, ok := s.faults[name]
		if !ok {
			continue
		}
		if a.passed < a.After {
			a.passed++
			continue
		}
		if a.Times > 0 && a.struck == a.Times {
			continue
		}
		a.struck++
		return a.Fault, true
	}
	return Fault{}, false
}

// through runs a call with the fault that strikes it.
func through[R any](ctx context.Context, s *Store, m Method, call func() (R, error)) (R, error) {
	f, ok := s.pick(m)
	if !ok {
		return call()
	}
	var none R
	if f.Strike != nil {
		f.Strike()
	}
	if err := wait(ctx, f.Delay); err != nil {
		return none, unavailable(m, err)
	}
	switch {
	case f.Hang:
		<-ctx.Done()
		return none, unavailable(m, context.Cause(ctx))
	case f.Err != nil:
		return none, fmt.Errorf("%s: injected: %w", m, f.Err)
	case f.Refuse:
		return none, fmt.Errorf("%s: injected: %w", m, storage.ErrUnavailable)
	case f.Cut:
		return none, fmt.Errorf("%s: injected: %w", m, storage.ErrOutcomeUnknown)
	}
	result, err := call()
	if waited := wait(ctx, f.DelayAfter); waited != nil && err == nil {
		// The work is done and the caller cannot know it.
		return none, fmt.Errorf("%s: injected: %w: %w", m, storage.ErrOutcomeUnknown, waited)
	}
	if f.Lose {
		return none, fmt.Errorf("%s: injected: %w", m, storage.ErrOutcomeUnknown)
	}
	return result, err
}

func unavailable(m Method, cause error) error {
	return fmt.Errorf("%s: injected: %w: %w", m, storage.ErrUnavailable, cause)
}

// wait returns nil after d, or the cause of ctx where that ends first.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
