-- The layout of QueueBox on SQL Server; docs/engines.md has the reasons. Everything lies in
-- the schema queuebox, which Migrate makes first. Durations are microseconds, times are UTC.
--
-- Names and keys are varbinary(255), the bytes of their UTF-8: SQL Server pads texts before
-- it compares them, so that 'a' and 'a ' would be one name under every collation (E11). To
-- read one: CAST(name AS varchar(255)).
--
-- Every index has ALLOW_PAGE_LOCKS = OFF, since READPAST skips rows and waits for pages, and
-- every table LOCK_ESCALATION = DISABLE, since nobody skips a table. An index without page
-- locks cannot be reorganized: rebuild it. There are no foreign keys and no triggers: both
-- read or write other tables under a statement that must not wait, and a trigger makes OUTPUT
-- an error. Whoever writes to a table with a filtered index, such as message, needs
-- QUOTED_IDENTIFIER and ANSI_NULLS on, as every driver has them (sqlcmd: -I).

-- +goose Up
CREATE TABLE queuebox.queue (
    queue_id                int IDENTITY NOT NULL,
    name                    varbinary(255) NOT NULL,
    version                 bigint NOT NULL CONSTRAINT queue_version_one DEFAULT 1,
    create_time             datetime2(6) NOT NULL,
    paused                  bit NOT NULL,
    default_lease_us        bigint NOT NULL,
    min_lease_us            bigint NOT NULL,
    max_lease_us            bigint NOT NULL,
    max_attempts            int NOT NULL,
    retry_min_us            bigint NOT NULL,
    retry_max_us            bigint NOT NULL,
    retry_multiplier        float NOT NULL,
    retry_jitter            float NOT NULL,
    max_in_flight           int NOT NULL,
    max_claims_per_second   float NOT NULL,
    ordering_mode           smallint NOT NULL,
    completed_retention_us  bigint NOT NULL,
    dead_retention_us       bigint NOT NULL,
    max_messages            bigint NOT NULL,
    CONSTRAINT queue_key PRIMARY KEY CLUSTERED (queue_id) WITH (ALLOW_PAGE_LOCKS = OFF),
    CONSTRAINT queue_name UNIQUE NONCLUSTERED (name) WITH (ALLOW_PAGE_LOCKS = OFF)
);
ALTER TABLE queuebox.queue SET (LOCK_ESCALATION = DISABLE);

-- One row for each live ordering key; its row lock is the lock of the key. blocked_by is the
-- position of the dead message that blocks the key (O7), as long as that message is there.
CREATE TABLE queuebox.ordering_key (
    key_id      bigint IDENTITY NOT NULL,
    queue_id    int NOT NULL,
    blocked_by  bigint NULL,
    name        varbinary(255) NOT NULL,
    CONSTRAINT ordering_key_key PRIMARY KEY CLUSTERED (key_id) WITH (ALLOW_PAGE_LOCKS = OFF, OPTIMIZE_FOR_SEQUENTIAL_KEY = ON),
    CONSTRAINT ordering_key_name UNIQUE NONCLUSTERED (queue_id, name) WITH (ALLOW_PAGE_LOCKS = OFF)
);
ALTER TABLE queuebox.ordering_key SET (LOCK_ESCALATION = DISABLE);

-- Live messages alone. id is half of the position, rounded down: a position is odd where the
-- message has an ordering key. state: 0 pending, 1 processing, 3 settling. place: 0 ready,
-- 1 delayed, 2 parked behind the head of its key. urgency is the priority with its sign
-- turned. What a claim or a renewal writes stands in no index.
--
-- The columns that a claim writes have a fixed length, but for worker_id, so that a row
-- hardly grows. Payloads of up to about 8,000 bytes lie in the row, where the claim that
-- returns them finds them. With large payloads, or where row versioning copies them at each
-- write (RCSI, as Azure SQL has it), EXEC sp_tableoption 'queuebox.message', 'large value
-- types out of row', 1 keeps the rows narrow at the cost of one more page for each message;
-- nothing else changes.
CREATE TABLE queuebox.message (
    id                bigint IDENTITY NOT NULL,
    queue_id          int NOT NULL,
    place             tinyint NOT NULL,
    state             tinyint NOT NULL CONSTRAINT message_state_pending DEFAULT 0,
    urgency           bigint NOT NULL,
    ready_time        datetime2(6) NOT NULL,
    create_time       datetime2(6) NOT NULL,
    lease_end         datetime2(6) NULL,
    claim_time        datetime2(6) NULL,
    expire_time       datetime2(6) NULL,
    key_id            bigint NULL,
    token             uniqueidentifier NULL,
    lease_us          bigint NULL,
    attempt           int NOT NULL CONSTRAINT message_attempt_zero DEFAULT 0,
    max_attempts      int NOT NULL,
    payload_bytes     int NOT NULL,
    wire_bytes        bigint NOT NULL,
    cancel_requested  bit NOT NULL CONSTRAINT message_cancel_no DEFAULT 0,
    -- The mark: what a transaction of the worker has decided (E12).
    outcome           smallint NULL,
    mark_action       smallint NULL,
    mark_dead_reason  smallint NULL,
    settle_time       datetime2(6) NULL,
    mark_delay_us     bigint NULL,
    mark_error        nvarchar(2000) COLLATE Latin1_General_100_BIN2 NULL,
    mark_reason_code  nvarchar(255) COLLATE Latin1_General_100_BIN2 NULL,
    mark_result       varbinary(max) NULL,
    worker_id         nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL CONSTRAINT message_worker_none DEFAULT N'',
    last_error        nvarchar(2000) COLLATE Latin1_General_100_BIN2 NULL,
    reason_code       nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL CONSTRAINT message_reason_none DEFAULT N'',
    content_type      nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    idempotency_key   varbinary(255) NOT NULL,
    attributes        nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL,
    payload           varbinary(max) NOT NULL,
    CONSTRAINT message_id PRIMARY KEY CLUSTERED (id) WITH (ALLOW_PAGE_LOCKS = OFF, OPTIMIZE_FOR_SEQUENTIAL_KEY = ON)
);
ALTER TABLE queuebox.message SET (LOCK_ESCALATION = DISABLE);
-- The order of a claim.
CREATE INDEX message_ready ON queuebox.message (queue_id, urgency, ready_time, id)
    WHERE place = 0 WITH (ALLOW_PAGE_LOCKS = OFF);
-- Delayed messages by the time at which they become ready.
CREATE INDEX message_delayed ON queuebox.message (queue_id, ready_time, id)
    WHERE place = 1 WITH (ALLOW_PAGE_LOCKS = OFF);
-- Those that wait behind the head of their key.
CREATE INDEX message_parked ON queuebox.message (queue_id, id)
    WHERE place = 2 WITH (ALLOW_PAGE_LOCKS = OFF);
-- A key has one head: the database itself refuses a second one (O1).
CREATE UNIQUE INDEX message_head ON queuebox.message (key_id)
    WHERE key_id IS NOT NULL AND place < 2 WITH (ALLOW_PAGE_LOCKS = OFF);
-- Those of a key, in their order.
CREATE INDEX message_key ON queuebox.message (key_id, place, id)
    WHERE key_id IS NOT NULL WITH (ALLOW_PAGE_LOCKS = OFF);

-- Completed messages. The token makes a row the settlement history of its completion too.
CREATE TABLE queuebox.completed (
    id               bigint NOT NULL,
    queue_id         int NOT NULL,
    finish_time      datetime2(6) NOT NULL,
    create_time      datetime2(6) NOT NULL,
    ready_time       datetime2(6) NOT NULL,
    expire_time      datetime2(6) NULL,
    token            uniqueidentifier NOT NULL,
    priority         int NOT NULL,
    attempt          int NOT NULL,
    max_attempts     int NOT NULL,
    payload_bytes    int NOT NULL,
    worker_id        nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    last_error       nvarchar(2000) COLLATE Latin1_General_100_BIN2 NULL,
    reason_code      nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    content_type     nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    -- Empty where there is none: a position is odd where there is one.
    ordering_key     varbinary(255) NOT NULL,
    idempotency_key  varbinary(255) NOT NULL,
    attributes       nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL,
    result           varbinary(max) NULL,
    -- Queue and position of the messages that the completion made (S10), as JSON.
    follow_ups       nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL,
    payload          varbinary(max) NOT NULL,
    CONSTRAINT completed_id PRIMARY KEY CLUSTERED (id) WITH (ALLOW_PAGE_LOCKS = OFF)
);
ALTER TABLE queuebox.completed SET (LOCK_ESCALATION = DISABLE);
-- Retention takes the oldest of a queue first.
CREATE INDEX completed_finish ON queuebox.completed (queue_id, finish_time, id) WITH (ALLOW_PAGE_LOCKS = OFF);

-- Dead and cancelled messages (state 4 and 5). action is 0 where no settlement ended the message.
CREATE TABLE queuebox.dead (
    id               bigint NOT NULL,
    queue_id         int NOT NULL,
    state            tinyint NOT NULL,
    finish_time      datetime2(6) NOT NULL,
    create_time      datetime2(6) NOT NULL,
    ready_time       datetime2(6) NOT NULL,
    expire_time      datetime2(6) NULL,
    token            uniqueidentifier NULL,
    action           smallint NOT NULL,
    dead_reason      smallint NOT NULL,
    priority         int NOT NULL,
    attempt          int NOT NULL,
    max_attempts     int NOT NULL,
    payload_bytes    int NOT NULL,
    wire_bytes       bigint NOT NULL,
    worker_id        nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    last_error       nvarchar(2000) COLLATE Latin1_General_100_BIN2 NULL,
    reason_code      nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    content_type     nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    ordering_key     varbinary(255) NOT NULL,
    idempotency_key  varbinary(255) NOT NULL,
    attributes       nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL,
    payload          varbinary(max) NOT NULL,
    CONSTRAINT dead_id PRIMARY KEY CLUSTERED (id) WITH (ALLOW_PAGE_LOCKS = OFF)
);
ALTER TABLE queuebox.dead SET (LOCK_ESCALATION = DISABLE);
-- Retention takes the oldest of a queue and state first.
CREATE INDEX dead_finish ON queuebox.dead (queue_id, state, finish_time, id) WITH (ALLOW_PAGE_LOCKS = OFF);
CREATE INDEX dead_queue ON queuebox.dead (queue_id, id) WITH (ALLOW_PAGE_LOCKS = OFF);

-- The settlement history of everything but completions (S5).
CREATE TABLE queuebox.settlement (
    id              bigint NOT NULL,
    token           uniqueidentifier NOT NULL,
    queue_id        int NOT NULL,
    settle_time     datetime2(6) NOT NULL,
    available_time  datetime2(6) NULL,
    action          smallint NOT NULL,
    outcome         smallint NOT NULL,
    dead_reason     smallint NOT NULL,
    CONSTRAINT settlement_key PRIMARY KEY CLUSTERED (id, token) WITH (ALLOW_PAGE_LOCKS = OFF)
);
ALTER TABLE queuebox.settlement SET (LOCK_ESCALATION = DISABLE);
CREATE INDEX settlement_time ON queuebox.settlement (queue_id, settle_time) WITH (ALLOW_PAGE_LOCKS = OFF);

-- Idempotency keys of messages that have one. position is 0 only inside the transaction that
-- inserts the row.
CREATE TABLE queuebox.idempotency_key (
    queue_id      int NOT NULL,
    name          varbinary(255) NOT NULL,
    position      bigint NOT NULL,
    create_time   datetime2(6) NOT NULL,
    content_hash  binary(32) NOT NULL,
    CONSTRAINT idempotency_key_name PRIMARY KEY CLUSTERED (queue_id, name) WITH (ALLOW_PAGE_LOCKS = OFF)
);
ALTER TABLE queuebox.idempotency_key SET (LOCK_ESCALATION = DISABLE);

-- One row for each claim call that has an id and got messages (C14). held is position
-- (8 bytes, big-endian) and token (16 bytes) of each message. Clustered by time, since ids are
-- random and Maintain removes the oldest.
CREATE TABLE queuebox.claim_call (
    queue_id    int NOT NULL,
    claim_id    uniqueidentifier NOT NULL,
    claim_time  datetime2(6) NOT NULL,
    replayed    bit NOT NULL CONSTRAINT claim_call_replayed_no DEFAULT 0,
    worker_id   nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    held        varbinary(max) NOT NULL,
    CONSTRAINT claim_call_id PRIMARY KEY NONCLUSTERED (queue_id, claim_id) WITH (ALLOW_PAGE_LOCKS = OFF)
);
ALTER TABLE queuebox.claim_call SET (LOCK_ESCALATION = DISABLE);
CREATE CLUSTERED INDEX claim_call_time ON queuebox.claim_call (claim_time, queue_id) WITH (ALLOW_PAGE_LOCKS = OFF);

-- One row for each queue that ever had a limit (L1, L2); its row lock is that of the limit.
-- rate and full_ns are the bucket of max_claims_per_second. in_flight says that leases are
-- counted, since set_time; those that were granted before are looked for at fill_time.
CREATE TABLE queuebox.claim_limit (
    queue_id   int NOT NULL,
    in_flight  bit NOT NULL,
    rate       float NOT NULL CONSTRAINT claim_limit_rate_none DEFAULT 0,
    full_ns    bigint NOT NULL CONSTRAINT claim_limit_full_none DEFAULT 0,
    set_time   datetime2(6) NOT NULL,
    fill_time  datetime2(6) NULL,
    CONSTRAINT claim_limit_queue PRIMARY KEY CLUSTERED (queue_id) WITH (ALLOW_PAGE_LOCKS = OFF)
);
ALTER TABLE queuebox.claim_limit SET (LOCK_ESCALATION = DISABLE);

-- Which messages of a queue with max_in_flight may be leased (L1). The row of the message
-- decides; a claim removes those that are not.
CREATE TABLE queuebox.claim_slot (
    queue_id  int NOT NULL,
    id        bigint NOT NULL,
    CONSTRAINT claim_slot_id PRIMARY KEY CLUSTERED (queue_id, id) WITH (ALLOW_PAGE_LOCKS = OFF)
);
ALTER TABLE queuebox.claim_slot SET (LOCK_ESCALATION = DISABLE);

-- The counts of each queue as they were last taken.
CREATE TABLE queuebox.queue_stats (
    queue_id       int NOT NULL,
    as_of          datetime2(6) NOT NULL,
    ready          bigint NOT NULL,
    delayed_count  bigint NOT NULL,
    blocked        bigint NOT NULL,
    leased         bigint NOT NULL,
    lease_expired  bigint NOT NULL,
    completed      bigint NOT NULL,
    dead           bigint NOT NULL,
    oldest_ready   datetime2(6) NULL,
    CONSTRAINT queue_stats_queue PRIMARY KEY CLUSTERED (queue_id) WITH (ALLOW_PAGE_LOCKS = OFF)
);
ALTER TABLE queuebox.queue_stats SET (LOCK_ESCALATION = DISABLE);

-- Whose turn it is to count (1): one server at a time, until it has ended or has not been heard
-- of for a few seconds. The other two rows are only locked: 2 by who removes what has passed
-- its retention, 3 by who makes a queue.
CREATE TABLE queuebox.count_turn (
    id          int NOT NULL,
    next_time   datetime2(6) NOT NULL,
    holder      uniqueidentifier NULL,
    held_until  datetime2(6) NOT NULL,
    CONSTRAINT count_turn_id PRIMARY KEY CLUSTERED (id) WITH (ALLOW_PAGE_LOCKS = OFF)
);
ALTER TABLE queuebox.count_turn SET (LOCK_ESCALATION = DISABLE);
INSERT INTO queuebox.count_turn (id, next_time, held_until)
VALUES (1, '1970-01-01T00:00:00', '1970-01-01T00:00:00'), (2, '1970-01-01T00:00:00', '1970-01-01T00:00:00'),
    (3, '1970-01-01T00:00:00', '1970-01-01T00:00:00');

-- What transactions of others enqueue (E12); the server places it after the commit. The
-- constraints are what Enqueue checks; their names are what the caller of the statement reads.
CREATE TABLE queuebox.incoming (
    id               bigint IDENTITY NOT NULL,
    queue_id         int NOT NULL,
    priority         int NOT NULL,
    max_attempts     int NOT NULL,
    wire_bytes       bigint NOT NULL,
    payload_limit    bigint NOT NULL,
    delay_us         bigint NULL,
    available_time   datetime2(6) NULL,
    expire_time      datetime2(6) NULL,
    create_time      datetime2(6) NOT NULL,
    content_type     nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    ordering_key     varbinary(255) NOT NULL,
    idempotency_key  varbinary(255) NOT NULL,
    attributes       nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL,
    payload          varbinary(max) NOT NULL,
    -- Why the row can never become a message; null while it may.
    refused          nvarchar(max) COLLATE Latin1_General_100_BIN2 NULL,
    CONSTRAINT incoming_id PRIMARY KEY CLUSTERED (id) WITH (ALLOW_PAGE_LOCKS = OFF, OPTIMIZE_FOR_SEQUENTIAL_KEY = ON)
);
ALTER TABLE queuebox.incoming SET (LOCK_ESCALATION = DISABLE);

-- Which messages transactions of others have marked (E12).
CREATE TABLE queuebox.marked (
    seq       bigint IDENTITY NOT NULL,
    queue_id  int NOT NULL,
    id        bigint NOT NULL,
    CONSTRAINT marked_seq PRIMARY KEY CLUSTERED (seq) WITH (ALLOW_PAGE_LOCKS = OFF, OPTIMIZE_FOR_SEQUENTIAL_KEY = ON)
);
ALTER TABLE queuebox.marked SET (LOCK_ESCALATION = DISABLE);
