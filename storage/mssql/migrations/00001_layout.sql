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

-- Which messages of a queue with max_in_flight may be leased (L1); the row of the message
-- decides. A slot whose message is not leased any more is given to the next one, so rows are
-- written in place and there are no more of them than leases at a time.
CREATE TABLE queuebox.claim_slot (
    queue_id  int NOT NULL,
    slot      int NOT NULL,
    id        bigint NOT NULL,
    CONSTRAINT claim_slot_number PRIMARY KEY CLUSTERED (queue_id, slot) WITH (ALLOW_PAGE_LOCKS = OFF)
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

-- What transactions of others enqueue (E12); the server places it after the commit.
CREATE TABLE queuebox.incoming (
    id               bigint IDENTITY NOT NULL,
    queue_id         int NOT NULL,
    priority         int NOT NULL,
    max_attempts     int NOT NULL,
    wire_bytes       bigint NOT NULL,
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
    -- The ordering key of the message, so that it is locked before the message is looked at.
    key_id    bigint NULL,
    CONSTRAINT marked_seq PRIMARY KEY CLUSTERED (seq) WITH (ALLOW_PAGE_LOCKS = OFF, OPTIMIZE_FOR_SEQUENTIAL_KEY = ON)
);
ALTER TABLE queuebox.marked SET (LOCK_ESCALATION = DISABLE);

-- What transactions of others run (E12). The procedures and the tables have one owner, so a
-- role that may execute them needs no other right, and cannot read the tokens of others. They are
-- called in a transaction that is open, at any isolation level; docs/own-transaction.md tells
-- the rest. Their hints make each read lock or not lock as READ COMMITTED does, so that at
-- SERIALIZABLE nothing of a neighbour is held.

-- The message and the token that the wire names: base 32, five bits a letter, so that eight
-- letters are five bytes. What no server made names nothing: null.
-- +goose StatementBegin
CREATE PROCEDURE queuebox.own_named
    @message_id nvarchar(max), @claim_token nvarchar(max),
    @queue_id bigint OUTPUT, @position bigint OUTPUT, @token uniqueidentifier OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(64), @bytes varbinary(40), @letters int, @n int, @digit int, @value bigint, @hex char(32);
    SELECT @queue_id = NULL, @position = NULL, @token = NULL, @bytes = 0x, @letters = 0;
    IF @message_id IS NULL OR @claim_token IS NULL OR DATALENGTH(@message_id) <> 54 OR DATALENGTH(@claim_token) <> 66
        OR UNICODE(@message_id) <> 109 OR UNICODE(@claim_token) <> 116
        RETURN;
    SET @text = SUBSTRING(@message_id, 2, 24) + SUBSTRING(@claim_token, 2, 32);
    WHILE @letters < 56
    BEGIN
        SELECT @value = 0, @n = 1;
        WHILE @n <= 8
        BEGIN
            -- The letters leave i, l, o and u out.
            SET @digit = UNICODE(SUBSTRING(@text, @letters + @n, 1));
            SET @digit = CASE
                WHEN @digit BETWEEN 48 AND 57 THEN @digit - 48
                WHEN @digit BETWEEN 97 AND 104 THEN @digit - 87
                WHEN @digit BETWEEN 106 AND 107 THEN @digit - 88
                WHEN @digit BETWEEN 109 AND 110 THEN @digit - 89
                WHEN @digit BETWEEN 112 AND 116 THEN @digit - 90
                WHEN @digit BETWEEN 118 AND 122 THEN @digit - 91 END;
            IF @digit IS NULL
                RETURN;
            SELECT @value = @value * 32 + @digit, @n = @n + 1;
        END;
        SELECT @bytes = @bytes + SUBSTRING(CAST(@value AS binary(8)), 4, 5), @letters = @letters + 8;
    END;
    -- As text the bytes of a token stand in their order; as bytes three of its groups would be turned.
    SET @hex = CONVERT(char(32), SUBSTRING(@bytes, 16, 16), 2);
    SELECT @queue_id = CAST(SUBSTRING(@bytes, 1, 4) AS int), @position = CAST(SUBSTRING(@bytes, 5, 8) AS bigint),
        @token = CAST(STUFF(STUFF(STUFF(STUFF(@hex, 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-') AS uniqueidentifier);
END;
-- +goose StatementEnd

-- The mark: 1 completes, 2 retries, 3 dead-letters. The row is locked first, and the fence (id,
-- state, token, lease) is judged of the row that the lock returned, by a clock that is read
-- after it (S13); at SNAPSHOT a row that has changed since fails the update (3960), and the
-- transaction is to be run again. State 3 takes the message out of every other fence; a lease
-- that never ends is the second lock. Every value that the server needs to finish is decided
-- here. The row of marked comes first: a mark without a settlement does nothing, and a
-- settlement without a mark would never be finished. No row: the claim is lost, roll back.
-- Leans on the primary keys.
-- +goose StatementBegin
CREATE PROCEDURE queuebox.own_mark
    @queue_id int, @action int, @max_result bigint, @message_id nvarchar(max), @claim_token nvarchar(max),
    @delay_ms bigint, @reason_code nvarchar(max), @error nvarchar(max), @result varbinary(max)
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @wrong nvarchar(200), @named_queue bigint, @position bigint, @id bigint, @token uniqueidentifier, @now datetime2(6),
        @state int, @row_token uniqueidentifier, @lease_end datetime2(6), @expire_time datetime2(6), @attempt int,
        @max_attempts int, @cancel bit, @key_id bigint, @outcome int, @dead_reason int, @delay_us bigint, @available datetime2(6),
        @retry_min float, @retry_max float, @multiplier float, @jitter float, @power float, @over int, @cut int, @marked int;
    SELECT @dead_reason = 0, @marked = 0, @cut = 2000;
    SELECT @wrong = CASE
        WHEN DATALENGTH(@result) > @max_result THEN N'queuebox: result_too_large'
        WHEN DATALENGTH(CAST(v.utf8 AS varchar(max))) > 255 THEN N'queuebox: reason_code_too_long'
        WHEN CHARINDEX(NCHAR(0), v.units) > 0 THEN N'queuebox: reason_code_holds_nul' END
    FROM (SELECT g.reason_code COLLATE Latin1_General_100_BIN2_UTF8 AS utf8, g.reason_code COLLATE Latin1_General_100_BIN2 AS units
        FROM (SELECT @reason_code AS reason_code) AS g) AS v;
    IF @wrong IS NOT NULL
    BEGIN;
        THROW 50000, @wrong, 1;
    END;
    EXEC queuebox.own_named @message_id, @claim_token, @named_queue OUTPUT, @position OUTPUT, @token OUTPUT;
    SET @id = @position / 2;
    IF @named_queue = @queue_id
        SELECT @state = m.state, @row_token = m.token, @lease_end = m.lease_end, @attempt = m.attempt, @max_attempts = m.max_attempts,
            @expire_time = m.expire_time, @cancel = m.cancel_requested, @key_id = m.key_id
        FROM queuebox.message AS m WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK)
        WHERE m.id = @id AND m.queue_id = @queue_id;
    SET @now = SYSUTCDATETIME();
    IF @state = 1 AND @row_token = @token AND @lease_end > @now AND @position % 2 = CASE WHEN @key_id IS NULL THEN 0 ELSE 1 END
    BEGIN
        SET @outcome = CASE
            WHEN @action = 1 THEN 1
            WHEN @action = 3 THEN 3
            WHEN @cancel = 1 THEN 5
            WHEN @expire_time <= @now THEN 3
            WHEN @max_attempts > 0 AND @attempt >= @max_attempts THEN 3
            ELSE 2 END;
        SET @dead_reason = CASE
            WHEN @action = 3 THEN 1
            WHEN @outcome <> 3 THEN 0
            WHEN @expire_time <= @now THEN 4
            ELSE 2 END;
        IF @outcome = 2 AND @delay_ms IS NOT NULL
            SET @delay_us = CASE WHEN @delay_ms < 0 THEN 0 WHEN @delay_ms > 315360000000 THEN 315360000000 ELSE @delay_ms END * 1000;
        ELSE IF @outcome = 2
        BEGIN
            -- The policy of the queue, as for a Retry without a delay.
            SELECT @retry_min = q.retry_min_us, @retry_max = q.retry_max_us, @multiplier = q.retry_multiplier, @jitter = q.retry_jitter
            FROM queuebox.queue AS q WITH (READCOMMITTEDLOCK)
            WHERE q.queue_id = @queue_id;
            SET @delay_us = 0;
            IF @retry_min > 0 AND @multiplier > 0
            BEGIN
                SET @power = (@attempt - 1) * LOG(@multiplier);
                SET @power = @retry_min * EXP(CASE WHEN @power > 600 THEN 600 WHEN @power < -600 THEN -600 ELSE @power END);
                SET @delay_us = CAST(ROUND((1 - @jitter * RAND()) * CASE WHEN @power > @retry_max THEN @retry_max ELSE @power END, 0) AS bigint);
            END;
        END;
        SET @available = DATEADD(microsecond, CAST(@delay_us % 1000000 AS int), DATEADD(second, CAST(@delay_us / 1000000 AS int), @now));
        -- At most 2000 bytes of UTF-8, cut where a character begins (S9). What is too long by so
        -- many bytes is so by a third of it in characters at least, and half of a pair goes too.
        SELECT @over = DATALENGTH(CAST(v.utf8 AS varchar(max))) - 2000
        FROM (SELECT g.error COLLATE Latin1_General_100_BIN2_UTF8 AS utf8
        FROM (SELECT @error AS error) AS g) AS v;
        IF @over > 0
        BEGIN
            WHILE @over > 0
            BEGIN
                SELECT @error = SUBSTRING(v.units, 1, @cut) FROM (SELECT g.error COLLATE Latin1_General_100_BIN2 AS units
        FROM (SELECT @error AS error) AS g) AS v;
                SELECT @over = DATALENGTH(CAST(v.utf8 AS varchar(max))) - 2000
                FROM (SELECT g.error COLLATE Latin1_General_100_BIN2_UTF8 AS utf8
        FROM (SELECT @error AS error) AS g) AS v;
                IF @over > 0
                    SET @cut = @cut - (@over + 2) / 3;
            END;
            SELECT @error = CASE WHEN UNICODE(SUBSTRING(v.units, @cut, 1)) BETWEEN 55296 AND 56319
                THEN SUBSTRING(v.units, 1, @cut - 1) ELSE @error END
            FROM (SELECT g.error COLLATE Latin1_General_100_BIN2 AS units
        FROM (SELECT @error AS error) AS g) AS v;
        END;
        INSERT INTO queuebox.marked (queue_id, id, key_id) VALUES (@queue_id, @id, @key_id);
        UPDATE queuebox.message WITH (ROWLOCK)
        SET state = 3, lease_end = '9999-12-31T23:59:59.999999', outcome = @outcome, mark_action = @action,
            mark_dead_reason = @dead_reason, settle_time = @now, mark_delay_us = @delay_us, mark_error = @error,
            mark_reason_code = @reason_code, mark_result = @result
        WHERE id = @id AND queue_id = @queue_id AND state = 1 AND token = @token AND lease_end > @now;
        SET @marked = @@ROWCOUNT;
    END;
    SELECT CASE @outcome WHEN 1 THEN 'COMPLETED' WHEN 2 THEN 'RETRIED' WHEN 3 THEN 'DEAD' ELSE 'CANCELLED' END AS outcome,
        CASE @dead_reason WHEN 1 THEN 'REJECTED' WHEN 2 THEN 'ATTEMPTS_EXHAUSTED' WHEN 4 THEN 'EXPIRED' ELSE '' END AS dead_reason,
        DATEDIFF_BIG(millisecond, CAST('1970-01-01' AS datetime2(6)), @now) AS settle_time,
        DATEDIFF_BIG(millisecond, CAST('1970-01-01' AS datetime2(6)), @available) AS available_time
    WHERE @marked = 1;
END;
-- +goose StatementEnd

-- What a claim was settled as: by a mark whose transaction has committed, or by anybody with
-- this token. No row where it was not settled, or is past the retention of the history.
-- Leans on the primary keys.
-- +goose StatementBegin
CREATE PROCEDURE queuebox.own_outcome
    @queue_id int, @message_id nvarchar(max), @claim_token nvarchar(max)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @named_queue bigint, @position bigint, @id bigint, @token uniqueidentifier;
    EXEC queuebox.own_named @message_id, @claim_token, @named_queue OUTPUT, @position OUTPUT, @token OUTPUT;
    SET @id = CASE WHEN @named_queue = @queue_id THEN @position / 2 END;
    SELECT TOP (1) CASE f.outcome WHEN 1 THEN 'COMPLETED' WHEN 2 THEN 'RETRIED' WHEN 3 THEN 'DEAD' WHEN 4 THEN 'RELEASED' ELSE 'CANCELLED' END AS outcome,
        CASE f.dead_reason WHEN 1 THEN 'REJECTED' WHEN 2 THEN 'ATTEMPTS_EXHAUSTED' WHEN 4 THEN 'EXPIRED' ELSE '' END AS dead_reason,
        DATEDIFF_BIG(millisecond, CAST('1970-01-01' AS datetime2(6)), f.settle_time) AS settle_time,
        DATEDIFF_BIG(millisecond, CAST('1970-01-01' AS datetime2(6)), f.available_time) AS available_time
    FROM (
        SELECT m.outcome, m.mark_dead_reason AS dead_reason, m.settle_time, DATEADD(microsecond, CAST(m.mark_delay_us % 1000000 AS int),
            DATEADD(second, CAST(m.mark_delay_us / 1000000 AS int), m.settle_time)) AS available_time
        FROM queuebox.message AS m WITH (READCOMMITTEDLOCK)
        WHERE m.id = @id AND m.queue_id = @queue_id AND m.state = 3 AND m.token = @token
        UNION ALL
        SELECT s.outcome, s.dead_reason, s.settle_time, s.available_time
        FROM queuebox.settlement AS s WITH (READCOMMITTEDLOCK)
        WHERE s.id = @id AND s.token = @token AND s.queue_id = @queue_id AND s.action <> 5
        UNION ALL
        SELECT 1, 0, c.finish_time, NULL
        FROM queuebox.completed AS c WITH (READCOMMITTEDLOCK)
        WHERE c.id = @id AND c.queue_id = @queue_id AND c.token = @token
        UNION ALL
        SELECT CASE d.state WHEN 5 THEN 5 ELSE 3 END, d.dead_reason, d.finish_time, NULL
        FROM queuebox.dead AS d WITH (READCOMMITTEDLOCK)
        WHERE d.id = @id AND d.queue_id = @queue_id AND d.token = @token AND d.action NOT IN (0, 5)
    ) AS f;
END;
-- +goose StatementEnd

-- Enqueues: appends to incoming, and the server makes a message of it after the commit. All but
-- the payload may be null; times are milliseconds since the epoch. What Enqueue refuses, this
-- refuses with a text that names it. Leans on the primary keys.
-- +goose StatementBegin
CREATE PROCEDURE queuebox.own_enqueue
    @queue_id int, @overhead bigint, @max_payload bigint, @payload varbinary(max), @content_type nvarchar(max),
    @attributes nvarchar(max), @idempotency_key nvarchar(max), @ordering_key nvarchar(max), @priority bigint, @delay_ms bigint,
    @available_time bigint, @max_attempts bigint, @expire_time bigint
AS
BEGIN
    SET NOCOUNT ON;
    SET XACT_ABORT ON;
    DECLARE @wrong nvarchar(200), @type_bytes bigint, @idempotency varbinary(max), @ordering varbinary(max),
        @count int, @bytes bigint, @texts int, @nul int;
    SELECT @content_type = COALESCE(@content_type, N''), @idempotency_key = COALESCE(@idempotency_key, N''),
        @ordering_key = COALESCE(@ordering_key, N''), @priority = COALESCE(@priority, 0), @max_attempts = COALESCE(@max_attempts, 0),
        @count = 0, @bytes = 0;
    SELECT @type_bytes = DATALENGTH(CAST(v.content_type AS varchar(max))),
        @idempotency = CAST(CAST(v.idempotency_key AS varchar(max)) AS varbinary(max)),
        @ordering = CAST(CAST(v.ordering_key AS varchar(max)) AS varbinary(max))
    FROM (SELECT g.content_type COLLATE Latin1_General_100_BIN2_UTF8 AS content_type, g.idempotency_key COLLATE Latin1_General_100_BIN2_UTF8 AS idempotency_key, g.ordering_key COLLATE Latin1_General_100_BIN2_UTF8 AS ordering_key
        FROM (SELECT @content_type AS content_type, @idempotency_key AS idempotency_key, @ordering_key AS ordering_key) AS g) AS v;
    SELECT @wrong = CASE
        WHEN NOT EXISTS (SELECT 1 FROM queuebox.queue AS q WITH (READCOMMITTEDLOCK) WHERE q.queue_id = @queue_id) THEN N'no_such_queue'
        WHEN @payload IS NULL THEN N'payload_is_null'
        WHEN DATALENGTH(@payload) > @max_payload THEN N'payload_too_large'
        WHEN @type_bytes > 255 THEN N'content_type_too_long'
        WHEN DATALENGTH(@idempotency) > 255 THEN N'idempotency_key_too_long'
        WHEN DATALENGTH(@ordering) > 255 THEN N'ordering_key_too_long'
        WHEN CHARINDEX(NCHAR(0), v.content_type) > 0 THEN N'content_type_holds_nul'
        WHEN CHARINDEX(NCHAR(0), v.idempotency_key) > 0 THEN N'idempotency_key_holds_nul'
        WHEN CHARINDEX(NCHAR(0), v.ordering_key) > 0 THEN N'ordering_key_holds_nul'
        WHEN @priority NOT BETWEEN -2147483648 AND 2147483647 THEN N'priority_out_of_range'
        WHEN @max_attempts NOT BETWEEN 0 AND 2147483647 THEN N'max_attempts_out_of_range'
        WHEN @delay_ms NOT BETWEEN 0 AND 315360000000 THEN N'delay_out_of_range'
        WHEN @delay_ms IS NOT NULL AND @available_time IS NOT NULL THEN N'delay_and_available_time'
        WHEN @available_time NOT BETWEEN 0 AND 7258118400000 THEN N'available_time_out_of_range'
        WHEN @expire_time NOT BETWEEN 0 AND 7258118400000 THEN N'expire_time_out_of_range'
        WHEN ISJSON(@attributes) = 0 THEN N'attributes_not_json' END
    FROM (SELECT g.content_type COLLATE Latin1_General_100_BIN2 AS content_type, g.idempotency_key COLLATE Latin1_General_100_BIN2 AS idempotency_key, g.ordering_key COLLATE Latin1_General_100_BIN2 AS ordering_key
        FROM (SELECT @content_type AS content_type, @idempotency_key AS idempotency_key, @ordering_key AS ordering_key) AS g) AS v;
    IF @wrong IS NULL AND @attributes IS NOT NULL
    BEGIN
        -- An array has members too, by which it cannot be told from an object; as the member of
        -- another one it has a type (4, and an object 5; 1 is a text).
        SET @wrong = CASE WHEN 5 <> (SELECT w.[type] FROM OPENJSON(N'{"a":' + @attributes + N'}') AS w) THEN N'attributes_not_text' END;
        SELECT @count = COUNT(*), @texts = COUNT(CASE WHEN a.[type] = 1 THEN 1 END),
            @bytes = COALESCE(SUM(CAST(DATALENGTH(CAST(a.key_utf8 AS varchar(max))) AS bigint)
                + COALESCE(DATALENGTH(CAST(a.value_utf8 AS varchar(max))), 0)), 0),
            @nul = COUNT(CASE WHEN CHARINDEX(NCHAR(0), a.key_units) > 0 OR CHARINDEX(NCHAR(0), a.value_units) > 0 THEN 1 END)
        FROM (SELECT o.[type], o.[key] COLLATE Latin1_General_100_BIN2_UTF8 AS key_utf8, o.[value] COLLATE Latin1_General_100_BIN2_UTF8 AS value_utf8,
                o.[key] COLLATE Latin1_General_100_BIN2 AS key_units, o.[value] COLLATE Latin1_General_100_BIN2 AS value_units
            FROM OPENJSON(@attributes) AS o) AS a;
        SET @wrong = CASE
            WHEN @wrong IS NOT NULL THEN @wrong
            WHEN @texts <> @count THEN N'attributes_not_text'
            WHEN @count > 64 THEN N'attributes_too_many'
            WHEN @nul > 0 THEN N'attributes_hold_nul'
            WHEN @bytes > 65536 THEN N'attributes_too_large' END;
    END;
    IF @wrong IS NOT NULL
    BEGIN;
        SET @wrong = N'queuebox: ' + @wrong;
        THROW 50000, @wrong, 1;
    END;
    INSERT INTO queuebox.incoming (queue_id, priority, max_attempts, wire_bytes, delay_us, available_time, expire_time, create_time,
        content_type, ordering_key, idempotency_key, attributes, payload)
    VALUES (@queue_id, @priority, @max_attempts,
        DATALENGTH(@payload) + @overhead + @type_bytes + DATALENGTH(@idempotency) + DATALENGTH(@ordering) + @bytes + 16 * @count,
        @delay_ms * 1000,
        DATEADD(millisecond, CAST(@available_time % 1000 AS int), DATEADD(second, CAST(@available_time / 1000 % 86400 AS int),
            DATEADD(day, CAST(@available_time / 86400000 AS int), CAST('1970-01-01' AS datetime2(6))))),
        DATEADD(millisecond, CAST(@expire_time % 1000 AS int), DATEADD(second, CAST(@expire_time / 1000 % 86400 AS int),
            DATEADD(day, CAST(@expire_time / 86400000 AS int), CAST('1970-01-01' AS datetime2(6))))),
        SYSUTCDATETIME(), @content_type, CAST(@ordering AS varbinary(255)), CAST(@idempotency AS varbinary(255)), @attributes, @payload);
END;
-- +goose StatementEnd
