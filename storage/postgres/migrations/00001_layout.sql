-- The layout of QueueBox on PostgreSQL; docs/adr/0002-postgres-layout.md has the reasons.
-- Everything lies in the schema queuebox, which Migrate makes first, since the table
-- of versions lies there too.

-- +goose Up

-- Settings of queues. Durations are microseconds, the tick of the clock.
CREATE TABLE queuebox.queue (
    queue_id                integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name                    text COLLATE "C" NOT NULL,
    version                 bigint NOT NULL DEFAULT 1,
    create_time             timestamptz NOT NULL,
    paused                  boolean NOT NULL,
    default_lease_us        bigint NOT NULL,
    min_lease_us            bigint NOT NULL,
    max_lease_us            bigint NOT NULL,
    max_attempts            integer NOT NULL,
    retry_min_us            bigint NOT NULL,
    retry_max_us            bigint NOT NULL,
    retry_multiplier        double precision NOT NULL,
    retry_jitter            double precision NOT NULL,
    max_in_flight           integer NOT NULL,
    max_claims_per_second   double precision NOT NULL,
    ordering_mode           smallint NOT NULL,
    completed_retention_us  bigint NOT NULL,
    dead_retention_us       bigint NOT NULL,
    max_messages            bigint NOT NULL,
    CONSTRAINT queue_name_key UNIQUE (name)
);

-- One sequence for all queues: positions rise, gaps mean nothing. A message with an
-- ordering key takes the odd number above the one drawn, so its reference alone tells that
-- its key must be locked, and the others never pay for a look.
CREATE SEQUENCE queuebox.message_position AS bigint INCREMENT BY 2 START WITH 2;

-- One row for each live ordering key; its row lock is the lock of the key. blocked_by is the
-- position of the dead message that blocks the key (O7), as long as that message is there.
CREATE TABLE queuebox.ordering_key (
    key_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id    integer NOT NULL,
    blocked_by  bigint,
    name        text COLLATE "C" NOT NULL,
    CONSTRAINT ordering_key_name_key UNIQUE (queue_id, name)
);

-- The hot table: live messages only. What a claim, a renewal or a mark writes (state,
-- token, the lease, attempt, worker, the mark) stands in no index and no predicate, so
-- that they stay HOT in the free half of the page.
-- state: 0 pending, 1 processing, 3 settling. place: 0 ready, 1 delayed, 2 parked
-- behind the head of its key.
CREATE TABLE queuebox.message (
    queue_id          integer NOT NULL,
    position          bigint NOT NULL,
    ready_time        timestamptz NOT NULL,
    create_time       timestamptz NOT NULL,
    lease_end         timestamptz,
    claim_time        timestamptz,
    expire_time       timestamptz,
    key_id            bigint,
    token             uuid,
    lease_ms          integer,
    priority          integer NOT NULL,
    attempt           integer NOT NULL DEFAULT 0,
    max_attempts      integer NOT NULL,
    payload_bytes     integer NOT NULL,
    wire_bytes        integer NOT NULL,
    place             smallint NOT NULL,
    state             smallint NOT NULL DEFAULT 0,
    cancel_requested  boolean NOT NULL DEFAULT false,
    -- The mark: what a transaction of the worker has decided (E12).
    outcome           smallint,
    mark_action       smallint,
    mark_dead_reason  smallint,
    settle_time       timestamptz,
    mark_delay_us     bigint,
    mark_error        text,
    mark_reason_code  text,
    mark_result       bytea,
    worker_id         text,
    last_error        text,
    reason_code       text,
    content_type      text NOT NULL,
    idempotency_key   text COLLATE "C",
    attributes        jsonb,
    payload           bytea NOT NULL,
    CONSTRAINT message_pkey PRIMARY KEY (queue_id, position)
) WITH (
    fillfactor = 40,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.2,
    autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.02,
    toast.autovacuum_vacuum_cost_delay = 0
);
-- The claim walks this one, in its order.
CREATE INDEX message_ready ON queuebox.message (queue_id, priority DESC, ready_time, position) WHERE place = 0;
-- Delayed messages wait here, where no claim walks over them.
CREATE INDEX message_delayed ON queuebox.message (queue_id, ready_time, position) WHERE place = 1;
-- The head of a key: the database itself refuses a second one (O1).
CREATE UNIQUE INDEX message_head ON queuebox.message (key_id) WHERE place < 2 AND key_id IS NOT NULL;
-- Those behind it, in their order. No message stands in both, so a look for one kind cannot
-- be planned over the other.
CREATE INDEX message_parked ON queuebox.message (key_id, position) WHERE place = 2;

-- Completed messages, by hour of their finish. The token makes a row the settlement
-- history of its completion too.
CREATE TABLE queuebox.completed (
    queue_id         integer NOT NULL,
    position         bigint NOT NULL,
    finish_time      timestamptz NOT NULL,
    create_time      timestamptz NOT NULL,
    ready_time       timestamptz NOT NULL,
    expire_time      timestamptz,
    token            uuid NOT NULL,
    priority         integer NOT NULL,
    attempt          integer NOT NULL,
    max_attempts     integer NOT NULL,
    payload_bytes    integer NOT NULL,
    worker_id        text,
    last_error       text,
    reason_code      text,
    content_type     text NOT NULL,
    ordering_key     text COLLATE "C",
    idempotency_key  text COLLATE "C",
    attributes       jsonb,
    result           bytea,
    -- The messages that the completion made (S10), in their order: queue and position of each.
    follow_ups       bigint[],
    payload          bytea NOT NULL
) PARTITION BY RANGE (finish_time);
CREATE INDEX completed_position ON queuebox.completed (queue_id, position);
CREATE TABLE queuebox.completed_default PARTITION OF queuebox.completed DEFAULT;
-- Retention takes the oldest of a queue first. An hour needs no such index: it is dropped,
-- or its rows pass the retention of their queue all together.
CREATE INDEX completed_default_finish ON queuebox.completed_default (queue_id, finish_time);

-- Dead and cancelled messages. action is 0 where no settlement ended the message.
CREATE TABLE queuebox.dead (
    queue_id         integer NOT NULL,
    position         bigint NOT NULL,
    finish_time      timestamptz NOT NULL,
    create_time      timestamptz NOT NULL,
    ready_time       timestamptz NOT NULL,
    expire_time      timestamptz,
    token            uuid,
    priority         integer NOT NULL,
    attempt          integer NOT NULL,
    max_attempts     integer NOT NULL,
    payload_bytes    integer NOT NULL,
    wire_bytes       integer NOT NULL,
    state            smallint NOT NULL,
    action           smallint NOT NULL,
    dead_reason      smallint NOT NULL,
    worker_id        text,
    last_error       text,
    reason_code      text,
    content_type     text NOT NULL,
    ordering_key     text COLLATE "C",
    idempotency_key  text COLLATE "C",
    attributes       jsonb,
    payload          bytea NOT NULL,
    CONSTRAINT dead_pkey PRIMARY KEY (queue_id, position)
);
-- Retention takes the oldest of a queue and state first.
CREATE INDEX dead_finish ON queuebox.dead (queue_id, state, finish_time);

-- The settlement history of everything but completions, by hour.
CREATE TABLE queuebox.settlement (
    queue_id        integer NOT NULL,
    position        bigint NOT NULL,
    token           uuid NOT NULL,
    settle_time     timestamptz NOT NULL,
    available_time  timestamptz,
    action          smallint NOT NULL,
    outcome         smallint NOT NULL,
    dead_reason     smallint NOT NULL
) PARTITION BY RANGE (settle_time);
CREATE INDEX settlement_position ON queuebox.settlement (queue_id, position);
CREATE TABLE queuebox.settlement_default PARTITION OF queuebox.settlement DEFAULT;
CREATE INDEX settlement_default_time ON queuebox.settlement_default (queue_id, settle_time);

-- Idempotency keys of messages that have one.
CREATE TABLE queuebox.idempotency_key (
    queue_id      integer NOT NULL,
    key           text COLLATE "C" NOT NULL,
    position      bigint NOT NULL,
    create_time   timestamptz NOT NULL,
    content_hash  bytea NOT NULL,
    CONSTRAINT idempotency_key_pkey PRIMARY KEY (queue_id, key)
);

-- One row for each claim call that has an id and got messages (C14).
CREATE TABLE queuebox.claim_call (
    queue_id    integer NOT NULL,
    claim_id    uuid NOT NULL,
    claim_time  timestamptz NOT NULL,
    replayed    boolean NOT NULL DEFAULT false,
    worker_id   text NOT NULL,
    positions   bigint[] NOT NULL,
    tokens      uuid[] NOT NULL,
    CONSTRAINT claim_call_pkey PRIMARY KEY (queue_id, claim_id)
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);
-- Maintain takes the oldest first.
CREATE INDEX claim_call_time ON queuebox.claim_call (claim_time);

-- One row for each queue that ever had a limit (L1, L2); its row lock is that of the limit.
-- A claim locks it and never updates it. fill_time is when the leases that nobody counted
-- yet are looked for: where max_in_flight is set they may be running.
CREATE TABLE queuebox.claim_limit (
    queue_id   integer PRIMARY KEY,
    in_flight  boolean NOT NULL,
    set_time   timestamptz NOT NULL,
    fill_time  timestamptz
);

-- Which messages of a queue with max_in_flight may be leased (L1). The row of the message
-- decides; a claim removes those that are not, and moves old ones to the end, so that it
-- never walks over what was removed before.
CREATE TABLE queuebox.claim_slot (
    queue_id  integer NOT NULL,
    seq       bigint GENERATED ALWAYS AS IDENTITY,
    position  bigint NOT NULL,
    CONSTRAINT claim_slot_pkey PRIMARY KEY (queue_id, seq)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);

-- One row for each claim statement of a queue with a limit; the newest holds the state:
-- the bucket of max_claims_per_second (L2) and the oldest slot that counts. Appended and
-- never updated; Maintain removes all but the newest.
CREATE TABLE queuebox.claim_pace (
    queue_id  integer NOT NULL,
    seq       bigint GENERATED ALWAYS AS IDENTITY,
    rate      double precision NOT NULL,
    full_ns   bigint NOT NULL,
    slot_from bigint NOT NULL,
    CONSTRAINT claim_pace_pkey PRIMARY KEY (queue_id, seq)
) WITH (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- The counts of each queue as they were last taken.
CREATE TABLE queuebox.queue_stats (
    queue_id       integer PRIMARY KEY,
    as_of          timestamptz NOT NULL,
    ready          bigint NOT NULL,
    delayed        bigint NOT NULL,
    blocked        bigint NOT NULL,
    leased         bigint NOT NULL,
    lease_expired  bigint NOT NULL,
    completed      bigint NOT NULL,
    dead           bigint NOT NULL,
    oldest_ready   timestamptz
) WITH (fillfactor = 50);

-- Whose turn it is to count: one server at a time, until it has ended or has not been heard
-- of for a few seconds.
CREATE TABLE queuebox.count_turn (
    id         smallint PRIMARY KEY CHECK (id = 1),
    next_time  timestamptz NOT NULL,
    holder     uuid,
    held_until timestamptz NOT NULL
) WITH (fillfactor = 50);
INSERT INTO queuebox.count_turn (id, next_time, held_until) VALUES (1, '-infinity', '-infinity');

-- What a foreign transaction enqueues (E12); the server places it after the commit.
-- The transaction id bounds the scan: below the oldest running one nothing appears any
-- more, so dead rows there are never walked over. The constraints are what Enqueue checks;
-- their names are what the caller of the statement reads.
CREATE TABLE queuebox.incoming (
    xid              xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seq              bigint GENERATED ALWAYS AS IDENTITY,
    queue_id         integer NOT NULL,
    priority         integer NOT NULL,
    max_attempts     integer NOT NULL,
    wire_bytes       integer NOT NULL,
    payload_limit    integer NOT NULL,
    attribute_count  integer NOT NULL,
    attribute_bytes  integer NOT NULL,
    delay_us         bigint,
    available_time   timestamptz,
    expire_time      timestamptz,
    create_time      timestamptz NOT NULL,
    content_type     text NOT NULL,
    ordering_key     text COLLATE "C",
    idempotency_key  text COLLATE "C",
    attributes       jsonb,
    payload          bytea NOT NULL,
    -- Why the row can never become a message; null while it may.
    refused          text,
    CONSTRAINT payload_too_large CHECK (octet_length(payload) <= payload_limit),
    CONSTRAINT content_type_too_long CHECK (octet_length(content_type) <= 255),
    CONSTRAINT idempotency_key_too_long CHECK (octet_length(idempotency_key) <= 255),
    CONSTRAINT ordering_key_too_long CHECK (octet_length(ordering_key) <= 255),
    CONSTRAINT attributes_too_many CHECK (attribute_count <= 64),
    CONSTRAINT attributes_too_large CHECK (attribute_bytes <= 65536),
    CONSTRAINT attributes_not_text CHECK (attributes IS NULL OR (jsonb_typeof(attributes) = 'object'
        AND NOT jsonb_path_exists(attributes, 'strict $.* ? (@.type() != "string")'))),
    CONSTRAINT max_attempts_negative CHECK (max_attempts >= 0),
    CONSTRAINT delay_out_of_range CHECK (delay_us BETWEEN 0 AND 315360000000000),
    CONSTRAINT delay_and_available_time CHECK (delay_us IS NULL OR available_time IS NULL),
    CONSTRAINT available_time_out_of_range CHECK (available_time BETWEEN '1970-01-01 00:00:00+00' AND '2200-01-01 00:00:00+00'),
    CONSTRAINT expire_time_out_of_range CHECK (expire_time BETWEEN '1970-01-01 00:00:00+00' AND '2200-01-01 00:00:00+00')
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX incoming_order ON queuebox.incoming (xid, seq) WHERE refused IS NULL;

-- Which messages foreign transactions have marked (E12).
CREATE TABLE queuebox.marked (
    xid       xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seq       bigint GENERATED ALWAYS AS IDENTITY,
    queue_id  integer NOT NULL,
    position  bigint NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX marked_order ON queuebox.marked (xid, seq);
