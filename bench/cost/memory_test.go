package cost

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/queuebox/queuebox/storage"
)

// memory is a storage that does the least that the server can live with. It keeps what the
// benchmarks look at (every message is delivered once and settled once) and no other rule.
type memory struct {
	storage.Store // nil: what is not here is not called

	// pause is how long a statement takes, so that concurrent calls can be joined as they are
	// with a database.
	pause time.Duration

	mu       sync.Mutex
	queues   map[string]storage.Queue
	position int64
	ready    map[int32][]storage.Message
	held     map[storage.Ref]storage.Token
}

func newMemory(pause time.Duration) *memory {
	return &memory{
		pause: pause, queues: map[string]storage.Queue{},
		ready: map[int32][]storage.Message{}, held: map[storage.Ref]storage.Token{},
	}
}

func (m *memory) statement() time.Time {
	if m.pause > 0 {
		time.Sleep(m.pause)
	}
	return time.Now()
}

func (m *memory) Capabilities() storage.Capabilities {
	return storage.Capabilities{Name: "memory", ClockTick: time.Microsecond, Durability: "none"}
}

func (m *memory) Enqueue(_ context.Context, p storage.EnqueueParams) (storage.EnqueueResult, error) {
	now := m.statement()
	res := storage.EnqueueResult{Items: make([]storage.Enqueued, len(p.Messages)), Now: now}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range p.Messages {
		n := &p.Messages[i]
		m.position++
		ref := storage.Ref{QueueID: n.QueueID, Position: m.position}
		m.ready[n.QueueID] = append(m.ready[n.QueueID], storage.Message{
			Ref: ref, Payload: n.Payload, PayloadBytes: int64(len(n.Payload)), ContentType: n.ContentType, Attributes: n.Attributes,
			MaxAttempts: 20, CreateTime: now, ReadyTime: now,
		})
		res.Items[i] = storage.Enqueued{Status: storage.EnqueueInserted, Ref: ref, State: storage.StatePending, ReadyTime: now}
	}
	return res, nil
}

func (m *memory) Claim(_ context.Context, p storage.ClaimParams) (storage.ClaimResult, error) {
	now := m.statement()
	res := storage.ClaimResult{Calls: make([]storage.ClaimOutcome, len(p.Calls)), Now: now}
	m.mu.Lock()
	defer m.mu.Unlock()
	ready := m.ready[p.QueueID]
	for i, call := range p.Calls {
		out := &res.Calls[i]
		out.Status = storage.ClaimServed
		n := min(call.Max, len(ready))
		if n == 0 {
			continue
		}
		out.Messages = make([]storage.Claimed, n)
		for k := range n {
			c := &out.Messages[k]
			c.Message = ready[k]
			c.Message.State, c.Message.Attempt, c.Message.WorkerID = storage.StateProcessing, 1, call.WorkerID
			c.Message.LeaseEnd = now.Add(call.Lease)
			binary.LittleEndian.PutUint64(c.Token[:8], rand.Uint64())
			binary.LittleEndian.PutUint64(c.Token[8:], rand.Uint64())
			m.held[c.Message.Ref] = c.Token
		}
		ready = ready[n:]
	}
	m.ready[p.QueueID] = ready
	res.More = len(ready) > 0
	return res, nil
}

func (m *memory) GiveBack(_ context.Context, p storage.GiveBackParams) (storage.GiveBackResult, error) {
	return storage.GiveBackResult{GivenBack: len(p.Claims), Now: m.statement()}, nil
}

func (m *memory) Renew(_ context.Context, p storage.RenewParams) (storage.RenewResult, error) {
	now := m.statement()
	res := storage.RenewResult{Items: make([]storage.Renewed, len(p.Items)), Now: now}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, it := range p.Items {
		res.Items[i] = storage.Renewed{Status: storage.ItemLost, Cause: storage.LostSuperseded}
		if m.held[it.Ref] == it.Token {
			lease := it.Lease
			if lease == 0 {
				lease = 30 * time.Second
			}
			res.Items[i] = storage.Renewed{Status: storage.ItemApplied, LeaseEnd: now.Add(lease)}
		}
	}
	return res, nil
}

func (m *memory) Settle(_ context.Context, p storage.SettleParams) (storage.SettleResult, error) {
	now := m.statement()
	res := storage.SettleResult{Items: make([]storage.Settled, len(p.Items)), Now: now}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range p.Items {
		it := &p.Items[i]
		res.Items[i] = storage.Settled{Status: storage.ItemLost, Cause: storage.LostSuperseded}
		if m.held[it.Ref] == it.Token {
			delete(m.held, it.Ref)
			res.Items[i] = storage.Settled{Status: storage.ItemApplied, Outcome: storage.OutcomeCompleted, SettleTime: now}
		}
	}
	return res, nil
}

func (m *memory) Look(_ context.Context, claims []storage.HeldClaim) (storage.RenewResult, error) {
	res := storage.RenewResult{Items: make([]storage.Renewed, len(claims)), Now: m.statement()}
	for i := range res.Items {
		res.Items[i].Status = storage.ItemApplied
	}
	return res, nil
}

func (m *memory) Notify(context.Context, storage.Notice) error { return nil }

func (m *memory) Listen(context.Context, func(storage.Notice), func(bool)) error {
	return storage.ErrNotSupported
}

func (m *memory) Now(context.Context) (time.Time, error) { return time.Now(), nil }
func (m *memory) Ready(context.Context) error            { return nil }
func (m *memory) Maintain(context.Context) error         { return nil }
func (m *memory) Close() error                           { return nil }

func (m *memory) CreateQueue(_ context.Context, name string, s storage.QueueSettings, _ int) (storage.Queue, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.queues[name]; ok {
		return storage.Queue{}, storage.ErrQueueExists
	}
	q := storage.Queue{QueueSettings: s, ID: int32(len(m.queues) + 1), Name: name, CreateTime: time.Now(), Version: 1}
	m.queues[name] = q
	return q, nil
}

func (m *memory) GetQueue(_ context.Context, name string) (storage.Queue, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q, ok := m.queues[name]
	if !ok {
		return storage.Queue{}, storage.ErrQueueNotFound
	}
	return q, nil
}

func (m *memory) StoredStats(context.Context, int32) (storage.QueueStats, error) {
	return storage.QueueStats{}, nil
}
func (m *memory) Blocked(context.Context, int32) (bool, error) { return false, nil }

func (m *memory) Sweep(context.Context, storage.SweepParams) (storage.SweepResult, error) {
	return storage.SweepResult{Now: time.Now()}, nil
}

func (m *memory) Retain(context.Context, storage.RetainParams) (storage.RetainResult, error) {
	return storage.RetainResult{}, nil
}

func (m *memory) SweepKeys(context.Context, storage.SweepKeysParams) (storage.SweepKeysResult, error) {
	return storage.SweepKeysResult{}, nil
}

func (m *memory) Count(context.Context, storage.CountParams) (storage.CountResult, error) {
	return storage.CountResult{}, nil
}

func (m *memory) Place(context.Context, storage.PlaceParams) (storage.PlaceResult, error) {
	return storage.PlaceResult{Now: time.Now()}, nil
}

func (m *memory) Finish(context.Context, storage.FinishParams) (storage.FinishResult, error) {
	return storage.FinishResult{Now: time.Now()}, nil
}
