package drive

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// The settings of River's own benchmark, which its documentation gives as those of the highest
// throughput.
const (
	riverWorkers  = 2000
	riverCooldown = 2 * time.Millisecond
	riverPoll     = 20 * time.Millisecond
	// riverFastest is the shortest cooldown and poll interval that River takes.
	riverFastest = time.Millisecond
	// riverConns lets inserts, fetches and completions run beside each other.
	riverConns = 20
	// riverInserters insert singly.
	riverInserters = 64
)

// riverShape inserts by InsertManyFast(1000), or singly from many callers.
type riverShape struct {
	single bool

	spec   Spec
	pool   *pgxpool.Pool
	insert *river.Client[pgx.Tx]
	bodies *bodies
}

type riverArgs struct {
	Body string `json:"body"`
}

func (riverArgs) Kind() string { return "bench" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]

	work func(context.Context, riverArgs) error
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	return w.work(ctx, job.Args)
}

// PrepareRiver makes the tables of River.
func PrepareRiver(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return fmt.Errorf("river: %w", err)
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("river: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("river: %w", err)
	}
	return nil
}

func (r riverShape) open(ctx context.Context, s Spec) (load, error) {
	config, err := pgxpool.ParseConfig(s.Database)
	if err != nil {
		return nil, fmt.Errorf("river: %w", err)
	}
	config.MaxConns = riverConns
	if r.single {
		config.MaxConns += riverInserters
	}
	r.spec, r.bodies = s, newBodies(s.Payload, nil)
	if r.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("river: %w", err)
	}
	r.insert, err = river.NewClient(riverpgxv5.New(r.pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	return &r, err
}

func (r *riverShape) close() { r.pool.Close() }

func (r *riverShape) fill(ctx context.Context, n int) error {
	for ; n > 0; n -= producerBatch {
		if err := r.insertMany(ctx, min(n, producerBatch)); err != nil {
			return err
		}
	}
	return nil
}

func (r *riverShape) insertMany(ctx context.Context, n int) error {
	params := make([]river.InsertManyParams, n)
	for i := range params {
		params[i].Args = riverArgs{Body: r.bodies.text()}
	}
	_, err := r.insert.InsertManyFast(ctx, params)
	return err
}

// serve runs a client with workers until ctx ends; completed is called for each job whose
// completion is in the database.
func (r *riverShape) serve(ctx context.Context, cooldown, poll time.Duration, work func(context.Context, riverArgs) error, completed func()) error {
	all := river.NewWorkers()
	river.AddWorker(all, &riverWorker{work: work})
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		FetchCooldown:     cooldown,
		FetchPollInterval: poll,
		Logger:            slog.New(slog.DiscardHandler),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		Workers:           all,
	})
	if err != nil {
		return fmt.Errorf("river: %w", err)
	}
	events, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: 100_000, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	defer unsubscribe()
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("river: %w", err)
	}
	for {
		select {
		case <-ctx.Done():
			// Handlers end by themselves once ctx has ended.
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			return client.Stop(stop)
		case event := <-events:
			if event != nil {
				completed()
			}
		}
	}
}

func (r *riverShape) cycle(ctx context.Context, m *Meter) error {
	inserters, batch, between := producers, producerBatch, producerBalance
	if r.single {
		inserters, batch, between = riverInserters, 1, singleBalance
	}
	b := newBalance(between)
	return crowd(ctx, inserters+1, func(ctx context.Context, i int) error {
		if i == inserters {
			return r.serve(ctx, riverCooldown, riverPoll, func(context.Context, riverArgs) error {
				_ = b.start(ctx, 1) // the end of the window lets the job complete
				return nil
			}, func() {
				m.Done(1)
				b.completed(1)
			})
		}
		for {
			if err := b.reserve(ctx, batch); err != nil {
				return err
			}
			start := time.Now()
			err := r.enqueue(ctx, batch)
			if err != nil {
				return err
			}
			m.Took(StepEnqueue, start)
			b.enqueued(batch)
		}
	})
}

func (r *riverShape) enqueue(ctx context.Context, n int) error {
	if n > 1 {
		return r.insertMany(ctx, n)
	}
	_, err := r.insert.Insert(ctx, riverArgs{Body: r.bodies.text()}, nil)
	return err
}

// burn works off n jobs, as `river bench --num-total-jobs` does. The window ends with the last.
func (r *riverShape) burn(ctx context.Context, n int, begin func(), m *Meter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := countdown(n, m, cancel)
	begin()
	return r.serve(ctx, riverCooldown, riverPoll, func(context.Context, riverArgs) error { return nil }, func() { done(1) })
}

// latency uses the shortest cooldown and poll interval that River takes.
func (r *riverShape) latency(ctx context.Context, rate int, m *Meter) error {
	started := newStarts(m, r.spec.Payload)
	return crowd(ctx, 2, func(ctx context.Context, i int) error {
		if i == 0 {
			return paced(ctx, rate, func(ctx context.Context) error {
				_, err := r.insert.Insert(ctx, riverArgs{Body: string(started.body(r.spec.Payload))}, nil)
				return err
			}, m)
		}
		return r.serve(ctx, riverFastest, riverFastest, func(_ context.Context, a riverArgs) error {
			started.handle([]byte(a.Body))
			return nil
		}, func() { m.Done(1) })
	})
}
