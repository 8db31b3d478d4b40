package server

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/storage"
)

// fullness tells whether queues with max_messages are full (L3), from the counts that were
// taken last and from what this server has enqueued and ended since.
type fullness struct {
	stats *statsCache

	mu   sync.Mutex
	byID map[int32]*fill
}

// fill is what the counts of a queue do not know of yet.
type fill struct {
	// coming are messages that are being inserted just now.
	coming int64
	// moves are what came and went, by the clock of the database.
	moves []move
}

type move struct {
	at time.Time
	n  int64
}

// mergeMoves is how far apart moves may lie that are kept as one.
const mergeMoves = 20 * time.Millisecond

func newFullness(stats *statsCache) *fullness {
	return &fullness{stats: stats, byID: map[int32]*fill{}}
}

// enter asks for room for n messages of a queue, and takes it until done is called with how
// many were inserted and when.
func (f *fullness) enter(ctx context.Context, q storage.Queue, n int64) (done func(at time.Time, inserted int64), err error) {
	if q.MaxMessages == 0 {
		return func(time.Time, int64) {}, nil
	}
	st, err := f.stats.get(ctx, q.ID)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.byID[q.ID]
	if x == nil {
		x = &fill{}
		f.byID[q.ID] = x
	}
	have := max(0, st.Live()+x.since(st.AsOf)) + x.coming
	if have+n > q.MaxMessages {
		return nil, queueFull(q, have)
	}
	x.coming += n
	return func(at time.Time, inserted int64) {
		f.mu.Lock()
		defer f.mu.Unlock()
		x.coming -= n
		x.add(at, inserted)
	}, nil
}

// enterAll asks for room in every queue of a call, or in none (E9). done is told what became
// of the call.
func (a *api) enterAll(ctx context.Context, queues map[string]storage.Queue, counts map[string]int64) (done func(names []string, res storage.EnqueueResult), err error) {
	entered := map[string]func(time.Time, int64){}
	for name, q := range queues {
		leave, err := a.full.enter(ctx, q, counts[name])
		if err != nil {
			for _, leave := range entered {
				leave(time.Time{}, 0)
			}
			return nil, err
		}
		entered[name] = leave
	}
	return func(names []string, res storage.EnqueueResult) {
		inserted := map[string]int64{}
		for i, item := range res.Items {
			if item.Status == storage.EnqueueInserted {
				inserted[names[i]]++
			}
		}
		for name, leave := range entered {
			leave(res.Now, inserted[name])
		}
	}, nil
}

// left notes that n messages of a queue have ended at a time of the database.
func (f *fullness) left(queueID int32, at time.Time, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.byID[queueID]; x != nil {
		x.add(at, -n)
	}
}

// since sums what happened after the counts were taken, and forgets the rest.
func (x *fill) since(asOf time.Time) int64 {
	k := 0
	for k < len(x.moves) && !x.moves[k].at.After(asOf) {
		k++
	}
	x.moves = x.moves[k:]
	sum := int64(0)
	for _, m := range x.moves {
		sum += m.n
	}
	return sum
}

func (x *fill) add(at time.Time, n int64) {
	if n == 0 {
		return
	}
	if last := len(x.moves) - 1; last >= 0 && at.Sub(x.moves[last].at) < mergeMoves {
		x.moves[last].n += n
		return
	}
	x.moves = append(x.moves, move{at, n})
	if len(x.moves) > maxMoves {
		x.moves = x.moves[1:]
	}
}

// maxMoves bounds what is kept for a queue while nobody asks for room in it.
const maxMoves = 1 << 14

func queueFull(q storage.Queue, have int64) *apiError {
	return &apiError{
		reason: queueboxv1.ErrorReason_ERROR_REASON_QUEUE_FULL,
		text: fmt.Sprintf("the queue %q holds %d messages and may hold %d; nothing was inserted; wait until workers have finished some, "+
			"or have an operator raise max_messages", q.Name, have, q.MaxMessages),
		metadata: map[string]string{
			"queue": q.Name, "max_messages": strconv.FormatInt(q.MaxMessages, 10), "messages": strconv.FormatInt(have, 10),
		},
	}
}
