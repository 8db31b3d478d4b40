package main

import (
	"github.com/queuebox/queuebox/cmd/queuebox-bench/drive"
	"github.com/queuebox/queuebox/cmd/queuebox-bench/report"
)

// contender is one program in one shape.
type contender struct {
	name, title, settings string
	// system is what it runs on, load its client program.
	system, load string
	// keys is the number of ordering keys; backlog, where it is set, stands instead of that of
	// the run, and none means an idle queue.
	keys, backlog int
	rate          int
	do            string
	// quick contenders are those of the smoke test.
	quick bool
}

// none is the backlog of an idle queue.
const none = -1

// measure is a group of contenders that run in turns.
type measure struct {
	name, title string
	payload     int
	// backlog, where it is set, stands instead of that of the run, for all contenders.
	backlog    int
	contenders []contender
}

const (
	oursBatch     = "BatchEnqueue, Claim, BatchSettle over 4 connections; server at its defaults"
	oursUnary     = "Enqueue, Claim, Complete over 4 connections; server at its defaults"
	oursWork      = "Worker of client/go, each handler completes its message and waits until that is durable; 2 producers, EnqueueBatch(1000); server at its defaults"
	oursSingle    = "Worker of client/go, each handler completes its message and waits until that is durable; server at its defaults; "
	riverBest     = "InsertManyFast(1000) from 2 goroutines, MaxWorkers 2000, FetchCooldown 2 ms, FetchPollInterval 20 ms (those of river bench), pool of 20; completed counted by Subscribe"
	riverLate     = "Insert, MaxWorkers 2000, FetchCooldown and FetchPollInterval 1 ms (the least it takes), LISTEN/NOTIFY on"
	graphileLocal = "addJobs(1000) from 2 loops; concurrentJobs 24, maxPoolSize 25, localQueue size 500, completeJobBatchDelay 0, failJobBatchDelay 0 (those of its performance page)"
	rawTable      = "hand-written SQL of pgmq: jsonb body, index on vt, FOR UPDATE SKIP LOCKED, no fence, prepared statements"
)

func batch1000(name string) contender {
	return contender{name: name, title: "QueueBox batch 1000", settings: "4 callers; " + oursBatch, system: "queuebox", load: "queuebox-batch-1000"}
}

func river() contender {
	return contender{name: "river", title: "River", settings: riverBest, system: "river", load: "river", quick: true}
}

func nats() contender {
	return contender{name: "nats-jetstream", title: "NATS JetStream, double ack", settings: "file storage, work queue, 8 callers of publish 100 (acks awaited), pull 100, 100 acks each confirmed; it does not sync to disk before it confirms", system: "nats", load: "nats-jetstream", quick: true}
}

// measures are all that there is to measure, in the order of the report.
func measures() []measure {
	return []measure{
		{
			name: report.Throughput, title: "Whole cycles, 100-byte payload", payload: 100,
			contenders: []contender{
				batch1000("queuebox-batch-1000"),
				{name: "queuebox-batch-100", title: "QueueBox batch 100", settings: "8 callers; " + oursBatch, system: "queuebox", load: "queuebox-batch-100", quick: true},
				{name: "queuebox-stream", title: "QueueBox Work stream", settings: "4 streams, one a connection, credit 1000, a frame of completions for each frame of deliveries; 2 producers, BatchEnqueue(1000); server at its defaults", system: "queuebox", load: "queuebox-stream", quick: true},
				{name: "queuebox-worker-2000", title: "QueueBox Go Worker, 2000 handlers", settings: oursWork, system: "queuebox", load: "queuebox-worker-2000"},
				{name: "queuebox-worker-256", title: "QueueBox Go Worker, 256 handlers", settings: oursWork, system: "queuebox", load: "queuebox-worker-256", quick: true},
				{name: "queuebox-worker-2000-single", title: "QueueBox Go Worker, 2000 handlers, one Enqueue a message", settings: oursSingle + "64 callers of Enqueue, as many as River's of Insert", system: "queuebox", load: "queuebox-worker-2000-single"},
				{name: "queuebox-worker-256-single", title: "QueueBox Go Worker, 256 handlers, one Enqueue a message", settings: oursSingle + "256 callers of Enqueue, as many as plain unary has", system: "queuebox", load: "queuebox-worker-256-single"},
				{name: "queuebox-unary-256", title: "QueueBox unary, 256 callers", settings: oursUnary, system: "queuebox", load: "queuebox-unary-256"},
				{name: "queuebox-unary-64", title: "QueueBox unary, 64 callers", settings: oursUnary, system: "queuebox", load: "queuebox-unary-64", quick: true},
				{name: "echo", title: "gRPC echo, 256 callers", settings: "the three calls answered at once by a server without a database", system: "echo", load: "queuebox-unary-256", backlog: none, quick: true},
				river(),
				{name: "river-single", title: "River, one Insert a job", settings: "64 callers of Insert; workers as above", system: "river", load: "river-single"},
				{name: "pgmq-delete-1000", title: "raw SQL, read + delete 1000", settings: "4 connections; " + rawTable, system: "table", load: "pgmq-delete-1000"},
				{name: "pgmq-archive-1000", title: "raw SQL, read + archive 1000", settings: "4 connections; " + rawTable, system: "table", load: "pgmq-archive-1000"},
				{name: "pgmq-delete-100", title: "raw SQL, read + delete 100", settings: "8 connections; " + rawTable, system: "table", load: "pgmq-delete-100", quick: true},
				{name: "pgmq-archive-100", title: "raw SQL, read + archive 100", settings: "8 connections; " + rawTable, system: "table", load: "pgmq-archive-100"},
				{name: "graphile-worker-local", title: "graphile-worker, localQueue 500", settings: graphileLocal, system: "graphile", load: "graphile-worker-local", quick: true},
				{name: "graphile-worker", title: "graphile-worker, defaults", settings: "addJobs(1000) from 2 loops; concurrentJobs 24, maxPoolSize 25, the rest at its defaults", system: "graphile", load: "graphile-worker"},
				{name: "pg-boss-1000", title: "pg-boss, fetch 1000", settings: "4 loops of insert(1000), fetch(batchSize 1000), complete", system: "pgboss", load: "pg-boss-1000", quick: true},
				{name: "pg-boss-100", title: "pg-boss, fetch 100", settings: "8 loops of insert(100), fetch(batchSize 100), complete", system: "pgboss", load: "pg-boss-100"},
				nats(),
				{name: "pgmq-delete-1", title: "raw SQL, one message a statement", settings: "16 connections; " + rawTable, system: "table", load: "pgmq-delete-1"},
			},
		},
		{
			name: report.Payload4K, title: "Whole cycles, 4 KiB payload", payload: 4096, backlog: 20_000,
			contenders: []contender{
				batch1000("queuebox-batch-1000"),
				{name: "queuebox-batch-100", title: "QueueBox batch 100", settings: "8 callers; " + oursBatch, system: "queuebox", load: "queuebox-batch-100", quick: true},
				{name: "queuebox-worker-2000", title: "QueueBox Go Worker, 2000 handlers", settings: oursWork, system: "queuebox", load: "queuebox-worker-2000"},
				river(),
				{name: "pgmq-delete-1000", title: "raw SQL, read + delete 1000", settings: "4 connections; " + rawTable, system: "table", load: "pgmq-delete-1000"},
				nats(),
			},
		},
		{
			name: report.Ordering, title: "Ordering keys, 100-byte payload", payload: 100,
			contenders: []contender{
				batch1000("queuebox-batch-1000"),
				{name: "queuebox-batch-1000-keyed", title: "QueueBox batch 1000, 10k ordering keys", settings: "4 callers; " + oursBatch, system: "queuebox", load: "queuebox-batch-1000", keys: 10_000},
				{name: "queuebox-hot-keys", title: "QueueBox unary, 8 hot keys, 8 workers", settings: oursUnary, system: "queuebox", load: "queuebox-unary-8", keys: 8, backlog: 1000},
				{name: "queuebox-hot-keys-unjoined", title: "the same with --no-join-calls", settings: "joining of calls switched off in the server; else as above", system: "queuebox-unjoined", load: "queuebox-unary-8", keys: 8, backlog: 1000},
			},
		},
		{
			name: report.Published, title: "Burn-down of a backlog, as the peers publish it", payload: 100,
			contenders: []contender{
				{name: "queuebox-burn", title: "QueueBox batch 1000, claim and settle alone", settings: "messages enqueued first; 4 callers; Claim, BatchSettle over 4 connections; server at its defaults", system: "queuebox", load: "queuebox-batch-1000", do: drive.Burn},
				{name: "queuebox-stream-burn", title: "QueueBox Work stream", settings: "messages enqueued first; 4 streams, one a connection, credit 1000; server at its defaults", system: "queuebox", load: "queuebox-stream", do: drive.Burn},
				{name: "river-burn", title: "River, method of river bench -n", settings: "jobs inserted first; MaxWorkers 2000, FetchCooldown 2 ms, FetchPollInterval 20 ms; published: 46,000 jobs/s on an 8-core M2", system: "river", load: "river", do: drive.Burn},
				{name: "graphile-burn", title: "graphile-worker, method of its performance page", settings: "jobs added first; " + graphileLocal + "; published: about 183,000 jobs/s on its machine", system: "graphile", load: "graphile-worker-local", do: drive.Burn},
			},
		},
		{
			name: report.LatencyOf, title: "Latency on an idle queue, 100-byte payload", payload: 100,
			contenders: latencyContenders(),
		},
		{
			name: report.Alone, title: "One caller alone, 100-byte payload", payload: 100,
			contenders: []contender{
				{name: "queuebox-unary-1", title: "QueueBox unary, 1 caller", settings: oursUnary, system: "queuebox", load: "queuebox-unary-1"},
				{name: "bare-statement", title: "bare statement, 1 connection", settings: "complete is the one statement that deletes by identifier and inserts into an archive; " + rawTable, system: "table", load: "pgmq-archive-1-caller"},
				{name: "echo-1", title: "gRPC echo, 1 caller", settings: "the three calls answered at once by a server without a database", system: "echo", load: "queuebox-unary-1", backlog: none},
			},
		},
	}
}

// latencyContenders run at two rates on an idle queue.
func latencyContenders() []contender {
	out := make([]contender, 0, 6)
	for _, at := range []struct {
		rate int
		name string
	}{{200, "@200"}, {1000, "@1000"}} {
		title := " at " + at.name[1:] + "/s"
		out = append(out,
			contender{name: "queuebox-worker" + at.name, title: "QueueBox Go Worker" + title, settings: "Worker of client/go, 256 handlers; Enqueue singly", system: "queuebox", load: "queuebox-worker-256", do: drive.Latency, rate: at.rate, backlog: none},
			contender{name: "queuebox-unary" + at.name, title: "QueueBox waiting unary claims" + title, settings: "64 callers of Claim(wait 20 s, 1 message) and Complete; Enqueue singly", system: "queuebox", load: "queuebox-unary-64", do: drive.Latency, rate: at.rate, backlog: none},
			contender{name: "river" + at.name, title: "River" + title, settings: riverLate, system: "river", load: "river", do: drive.Latency, rate: at.rate, backlog: none})
	}
	return out
}
