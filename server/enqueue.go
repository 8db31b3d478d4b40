package server

import (
	"context"
	"time"

	queueboxv1 "github.com/queuebox/queuebox/gen/queuebox/v1"
	"github.com/queuebox/queuebox/server/wireid"
	"github.com/queuebox/queuebox/storage"
)

// Enqueue inserts one message.
func (a *api) Enqueue(ctx context.Context, req *queueboxv1.EnqueueRequest) (*queueboxv1.EnqueueResponse, error) {
	c := &check{}
	m := a.newMessage(c, req)
	if err := c.err(); err != nil {
		return nil, err
	}
	res, err := a.enqueue(ctx, []string{req.GetQueue()}, []storage.NewMessage{m})
	if err != nil {
		return nil, err
	}
	return enqueued(res.Items[0], res.Now), nil
}

// newMessage checks a request and turns it into what the storage takes, but for the
// queue id.
func (a *api) newMessage(c *check, req *queueboxv1.EnqueueRequest) storage.NewMessage {
	c.queue("queue", req.GetQueue())
	c.payload("payload", len(req.GetPayload()), a.cfg.MaxPayloadBytes)
	c.text("content_type", req.GetContentType())
	c.attributes("attributes", req.GetAttributes())
	c.text("idempotency_key", req.GetIdempotencyKey())
	c.text("ordering_key", req.GetOrderingKey())
	delay := c.delay("delay_ms", req.GetDelayMs())
	available := c.time("available_time", req.GetAvailableTime())
	expire := c.time("expire_time", req.GetExpireTime())
	if req.GetDelayMs() != 0 && req.GetAvailableTime() != nil {
		c.wrong("available_time", "cannot stand beside delay_ms; set one of them")
	}
	if req.GetMaxAttempts() < 0 {
		c.wrong("max_attempts", "is negative; 0 takes the setting of the queue")
	}
	m := storage.NewMessage{
		Payload:        req.GetPayload(),
		ContentType:    req.GetContentType(),
		Attributes:     req.GetAttributes(),
		IdempotencyKey: req.GetIdempotencyKey(),
		OrderingKey:    req.GetOrderingKey(),
		Priority:       req.GetPriority(),
		Delay:          delay,
		AvailableTime:  available,
		MaxAttempts:    req.GetMaxAttempts(),
		ExpireTime:     expire,
		WireBytes:      wireBytes(req),
	}
	if m.IdempotencyKey != "" {
		m.ContentHash = contentHash(req)
	}
	return m
}

// attributes checks the headers of a message.
func (c *check) attributes(field string, attrs map[string]string) {
	if len(attrs) > maxAttributes {
		c.wrong(field, "has %d entries; at most %d are allowed", len(attrs), maxAttributes)
	}
	total := 0
	for k, v := range attrs {
		total += len(k) + len(v)
	}
	if total > maxAttributeBytes {
		c.wrong(field, "has %d bytes; at most %d are allowed", total, maxAttributeBytes)
		return
	}
	for k, v := range attrs {
		before := len(c.violations)
		c.textUpTo(field, k, maxAttributeBytes)
		if len(c.violations) == before {
			c.textUpTo(field, v, maxAttributeBytes)
		}
		if len(c.violations) > before {
			return
		}
	}
}

// wireBytes is the most that the message can take in an answer of Claim: its own
// fields, and what attempts can add to it (error text, reason code, worker, times,
// token), each with its tag and length.
func wireBytes(req *queueboxv1.EnqueueRequest) int64 {
	const later = maxErrorBytes + 2*maxNameBytes + 512
	n := len(req.GetPayload()) + len(req.GetQueue()) + len(req.GetContentType()) + len(req.GetIdempotencyKey()) +
		len(req.GetOrderingKey()) + later
	for k, v := range req.GetAttributes() {
		n += len(k) + len(v) + 16
	}
	return int64(n)
}

// contentHash covers what a repeat must have the same (E3): everything but the times
// and the key.
func contentHash(req *queueboxv1.EnqueueRequest) [32]byte {
	return storage.ContentHash(&storage.NewMessage{
		Payload: req.GetPayload(), ContentType: req.GetContentType(), Attributes: req.GetAttributes(),
		OrderingKey: req.GetOrderingKey(), Priority: req.GetPriority(), MaxAttempts: req.GetMaxAttempts(),
	})
}

// enqueue finds or makes the queues and inserts, joined with other calls. names[i] is the queue
// of ms[i].
func (a *api) enqueue(ctx context.Context, names []string, ms []storage.NewMessage) (storage.EnqueueResult, error) {
	queues := make(map[string]storage.Queue, 1)
	var counts map[string]int64 // made for a queue that bounds its messages
	for i, name := range names {
		q, ok := queues[name]
		if !ok {
			var err error
			if q, err = a.queueForEnqueue(ctx, name); err != nil {
				return storage.EnqueueResult{}, err
			}
			queues[name] = q
		}
		ms[i].QueueID = q.ID
		if q.MaxMessages > 0 {
			if counts == nil {
				counts = map[string]int64{}
			}
			counts[name]++
		}
	}
	entered := func([]string, storage.EnqueueResult) {}
	if counts != nil {
		var err error
		if entered, err = a.enterAll(ctx, queues, counts); err != nil {
			return storage.EnqueueResult{}, err
		}
	}
	res, err := a.join.Enqueue(ctx, connection(ctx), ms)
	for i, item := range res.Items {
		if item.Status == storage.EnqueueKeyReused {
			res.Items, err = nil, keyReused(i, len(ms))
			break
		}
	}
	entered(names, res)
	if err != nil {
		return storage.EnqueueResult{}, err
	}
	for i, name := range names {
		a.metrics.enqueued(name, res.Items[i].Status == storage.EnqueueDuplicate)
	}
	return res, nil
}

func (a *api) queueForEnqueue(ctx context.Context, name string) (storage.Queue, error) {
	if !a.cfg.CreateQueues {
		return a.catalog.get(ctx, name)
	}
	if q, known := a.catalog.fresh(name); known {
		return q, nil
	}
	call, cancel := a.statement(ctx)
	defer cancel()
	q, made, err := a.catalog.create(call, name, a.cfg.QueueDefaults, a.cfg.MaxQueues)
	if made {
		a.log.InfoContext(ctx, "queue created by its first enqueue", "queue", name)
		a.dispatch.WakeName(name)
	}
	return q, err
}

// announce wakes those who wait for the messages, once for each queue and, of the
// delayed ones, for the earliest.
func (a *api) announce(ms []storage.NewMessage, res storage.EnqueueResult) {
	first := map[int32]time.Time{}
	for i, item := range res.Items {
		if item.Status != storage.EnqueueInserted {
			continue
		}
		id := ms[i].QueueID
		if ms[i].OrderingKey != "" {
			a.keyed.see(id)
		}
		if t, ok := first[id]; !ok || item.ReadyTime.Before(t) {
			first[id] = item.ReadyTime
		}
	}
	for id, ready := range first {
		a.dispatch.ReadyAt(id, ready, res.Now)
	}
}

func enqueued(item storage.Enqueued, now time.Time) *queueboxv1.EnqueueResponse {
	return &queueboxv1.EnqueueResponse{
		MessageId:  wireid.Message(item.Ref),
		Duplicate:  item.Status == storage.EnqueueDuplicate,
		State:      wireState(item.State),
		ServerTime: stamp(now),
	}
}
