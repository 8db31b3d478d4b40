package dispatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// L1: waiters behind max_in_flight are woken by a settlement, and nobody asks in between
// more often than a poll does.
func TestL1ASettlementWakesAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.maxLeases = 1
		d := start(t, f)
		first, second := f.add(0), f.add(0)
		got := <-begin(t.Context(), d, request(0))
		require.Equal(t, first, got.answer.Messages[0].Message.Ref.Position)
		waits := begin(t.Context(), d, request(10*time.Second))
		time.Sleep(2500 * time.Millisecond)
		require.LessOrEqual(t, f.looks(), 5, "one look and the polls")
		f.settle(first)
		d.Settled(1, first)
		out := <-waits
		require.Equal(t, second, out.answer.Messages[0].Message.Ref.Position)
		require.Equal(t, 2500*time.Millisecond, out.took, "at once")
	})
}

// A settlement that comes while the statement runs is not missed.
func TestL1ASettlementBesideALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.maxLeases = 1
		d := start(t, f)
		first, _ := f.add(0), f.add(0)
		<-begin(t.Context(), d, request(0))
		time.Sleep(restart) // what the first look has told is forgotten
		f.slowAfter = 100 * time.Millisecond
		waits := begin(t.Context(), d, request(10*time.Second))
		time.Sleep(50 * time.Millisecond)
		f.settle(first)
		d.Settled(1, first)
		out := <-waits
		require.Len(t, out.answer.Messages, 1)
		require.Equal(t, 200*time.Millisecond, out.took)
	})
}

// The end of a lease that another server granted is known from the answer of the claim.
func TestL1TheEndOfALeaseWakesAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.maxLeases = 1
		d := start(t, f, func(c *Config) { c.PollInterval = time.Hour; c.MaxWait = time.Hour })
		f.add(0)
		f.leases[77] = time.Now().Add(5 * time.Second)
		out := <-begin(t.Context(), d, request(time.Minute))
		require.Len(t, out.answer.Messages, 1)
		require.Equal(t, 5*time.Second, out.took)
		require.Equal(t, 2, f.looks())
	})
}

// L2: the next look is when the next token is there, and a high rate is not asked for each.
func TestL2ATokenWakesAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.rate = 2
		d := start(t, f)
		for range 10 {
			f.add(0)
		}
		r := request(10 * time.Second)
		r.Max = 10
		require.Len(t, (<-begin(t.Context(), d, r)).answer.Messages, 2, "what the limit leaves")
		out := <-begin(t.Context(), d, r)
		require.Len(t, out.answer.Messages, 1)
		require.Equal(t, 500*time.Millisecond, out.took)
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.rate = 1000
		d := start(t, f)
		for range 2000 {
			f.add(0)
		}
		r := request(10 * time.Second)
		r.Max = 1000
		require.Len(t, (<-begin(t.Context(), d, r)).answer.Messages, 1000)
		before := f.looks()
		began := time.Now()
		for got := 0; got < 500; {
			got += len((<-begin(t.Context(), d, r)).answer.Messages)
		}
		require.Less(t, time.Since(began), time.Second)
		require.LessOrEqual(t, f.looks()-before, 102, "two looks for each ten tokens")
	})
}

// C17: an empty answer says which limit it was, also to those who came later and were not
// looked for by a statement of their own.
func TestC17TheLimitIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.maxLeases = 1
		d := start(t, f)
		f.add(0)
		f.add(0)
		<-begin(t.Context(), d, request(0))
		require.Equal(t, InFlightLimit, (<-begin(t.Context(), d, request(0))).answer.Empty)
		one := begin(t.Context(), d, request(300*time.Millisecond))
		synctest.Wait()
		two := begin(t.Context(), d, request(200*time.Millisecond))
		require.Equal(t, InFlightLimit, (<-two).answer.Empty)
		require.Equal(t, InFlightLimit, (<-one).answer.Empty)
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.rate = 0.01
		d := start(t, f)
		f.add(0)
		f.add(0)
		<-begin(t.Context(), d, request(0))
		require.Equal(t, RateLimit, (<-begin(t.Context(), d, request(200*time.Millisecond))).answer.Empty)
		f.mu.Lock()
		f.rate = 0
		f.mu.Unlock()
		<-begin(t.Context(), d, request(0))
		require.Equal(t, NoneReady, (<-begin(t.Context(), d, request(0))).answer.Empty)
	})
}

// The other servers hear of a lease that is over, unless the limit held nobody up here.
func TestL1OtherServersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.notifications = true
		d := start(t, f)
		synctest.Wait()
		f.hello(7)
		told := func() int {
			time.Sleep(time.Second)
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.sent)
		}
		d.Freed(1)
		require.Equal(t, 1, told(), "nobody waits here, perhaps elsewhere")
		waits := begin(t.Context(), d, request(10*time.Second))
		synctest.Wait()
		d.Freed(1)
		require.Equal(t, 1, told(), "this server has looked, and no limit held it up")
		f.mu.Lock()
		f.maxLeases = 1
		f.leases[77] = time.Now().Add(5 * time.Second)
		f.mu.Unlock()
		d.Wake(1)
		synctest.Wait()
		d.Freed(1)
		require.Equal(t, 2, told())
		<-waits
	})
}
