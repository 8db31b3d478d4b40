-- The whole layout, final from the first migration: docs/adr/0003-sqlite.md gives
-- the reasons. Times are milliseconds since the epoch. Text compares by bytes.

-- +goose Up
CREATE TABLE queue (
    id                     INTEGER PRIMARY KEY AUTOINCREMENT,
    name                   TEXT    NOT NULL UNIQUE,
    create_time            INTEGER NOT NULL,
    version                INTEGER NOT NULL,
    paused                 INTEGER NOT NULL,
    default_lease          INTEGER NOT NULL,
    min_lease              INTEGER NOT NULL,
    max_lease              INTEGER NOT NULL,
    max_attempts           INTEGER NOT NULL,
    retry_min              INTEGER NOT NULL,
    retry_max              INTEGER NOT NULL,
    retry_multiplier       REAL    NOT NULL,
    retry_jitter           REAL    NOT NULL,
    max_in_flight          INTEGER NOT NULL,
    max_claims_per_second  REAL    NOT NULL,
    ordering               INTEGER NOT NULL,
    completed_retention    INTEGER NOT NULL,
    dead_retention         INTEGER NOT NULL,
    max_messages           INTEGER NOT NULL
) STRICT;

-- The last position that was given out. Positions are drawn here and not by
-- AUTOINCREMENT, so that a batch costs one update and its positions are known
-- before its rows are written.
CREATE TABLE position_sequence (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    last INTEGER NOT NULL
) STRICT;

INSERT INTO position_sequence (id, last) VALUES (1, 0);

-- One row for each ordering key that is in use; message.key_id names it. blocked_by is the
-- position of the dead head behind which the key waits (O7); it counts only as long as that
-- message is dead and the queue blocks.
CREATE TABLE ordering_key (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id   INTEGER NOT NULL,
    key        TEXT    NOT NULL,
    blocked_by INTEGER,
    UNIQUE (queue_id, key)
) STRICT;

-- Live messages alone. The payload stands last, so that what a claim, a renewal or
-- a fence reads and writes never lies on an overflow page.
-- state: 0 pending, 1 processing, 3 settling. place: 0 ready, 1 delayed, 2 parked.
CREATE TABLE message (
    position         INTEGER PRIMARY KEY,
    queue_id         INTEGER NOT NULL,
    place            INTEGER NOT NULL,
    priority         INTEGER NOT NULL,
    ready_time       INTEGER NOT NULL,
    state            INTEGER NOT NULL DEFAULT 0,
    token            BLOB,
    lease_end        INTEGER,
    lease            INTEGER,
    claim_time       INTEGER,
    attempt          INTEGER NOT NULL DEFAULT 0,
    max_attempts     INTEGER NOT NULL,
    worker_id        TEXT    NOT NULL DEFAULT '',
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    key_id           INTEGER,
    create_time      INTEGER NOT NULL,
    expire_time      INTEGER,
    wire_bytes       INTEGER NOT NULL,
    -- The mark of a transaction of the worker (E12).
    outcome          INTEGER,
    settle_time      INTEGER,
    mark_action      INTEGER,
    mark_delay       INTEGER,
    mark_dead_reason INTEGER,
    mark_reason_code TEXT,
    mark_error       TEXT,
    mark_result      BLOB,
    last_error       TEXT    NOT NULL DEFAULT '',
    reason_code      TEXT    NOT NULL DEFAULT '',
    content_type     TEXT    NOT NULL,
    idempotency_key  TEXT    NOT NULL,
    attributes       TEXT,
    payload_bytes    INTEGER NOT NULL,
    payload          BLOB    NOT NULL
) STRICT;

-- The order of a claim; the rowid, which is the position, is its last column by itself.
-- No column that a claim or a renewal writes stands in an index or in a predicate.
CREATE INDEX message_ready ON message (queue_id, priority DESC, ready_time) WHERE place = 0;
CREATE INDEX message_delayed ON message (queue_id, ready_time) WHERE place = 1;
CREATE INDEX message_key ON message (key_id) WHERE key_id IS NOT NULL;
-- A key has one head: the database itself refuses a second one (O1).
CREATE UNIQUE INDEX message_head ON message (key_id) WHERE place < 2 AND key_id IS NOT NULL;

-- Completed messages, and with their token the settlement history of completions.
CREATE TABLE completed (
    position        INTEGER PRIMARY KEY,
    queue_id        INTEGER NOT NULL,
    finish_time     INTEGER NOT NULL,
    token           BLOB    NOT NULL,
    attempt         INTEGER NOT NULL,
    max_attempts    INTEGER NOT NULL,
    priority        INTEGER NOT NULL,
    ready_time      INTEGER NOT NULL,
    create_time     INTEGER NOT NULL,
    expire_time     INTEGER,
    worker_id       TEXT    NOT NULL,
    last_error      TEXT    NOT NULL,
    reason_code     TEXT    NOT NULL,
    content_type    TEXT    NOT NULL,
    idempotency_key TEXT    NOT NULL,
    ordering_key    TEXT    NOT NULL,
    -- Queue and position of the messages that the completion enqueued, as JSON (S10).
    follow_ups      TEXT,
    attributes      TEXT,
    payload_bytes   INTEGER NOT NULL,
    payload         BLOB    NOT NULL,
    result          BLOB
) STRICT;

CREATE INDEX completed_finish ON completed (queue_id, finish_time);

-- Dead and cancelled messages (state 4 and 5). The token is that of the last claim. The
-- action is that of the settlement that ended the message, 0 where none did.
CREATE TABLE dead (
    position        INTEGER PRIMARY KEY,
    queue_id        INTEGER NOT NULL,
    state           INTEGER NOT NULL,
    finish_time     INTEGER NOT NULL,
    token           BLOB,
    action          INTEGER NOT NULL,
    dead_reason     INTEGER NOT NULL,
    attempt         INTEGER NOT NULL,
    max_attempts    INTEGER NOT NULL,
    priority        INTEGER NOT NULL,
    ready_time      INTEGER NOT NULL,
    create_time     INTEGER NOT NULL,
    expire_time     INTEGER,
    worker_id       TEXT    NOT NULL,
    last_error      TEXT    NOT NULL,
    reason_code     TEXT    NOT NULL,
    content_type    TEXT    NOT NULL,
    idempotency_key TEXT    NOT NULL,
    ordering_key    TEXT    NOT NULL,
    wire_bytes      INTEGER NOT NULL,
    attributes      TEXT,
    payload_bytes   INTEGER NOT NULL,
    payload         BLOB    NOT NULL
) STRICT;

CREATE INDEX dead_finish ON dead (queue_id, state, finish_time);
CREATE INDEX dead_queue ON dead (queue_id);

-- The settlement history of everything but completions (S5).
CREATE TABLE settlement (
    position    INTEGER NOT NULL,
    token       BLOB    NOT NULL,
    queue_id    INTEGER NOT NULL,
    action      INTEGER NOT NULL,
    outcome     INTEGER NOT NULL,
    dead_reason INTEGER NOT NULL,
    settle_time INTEGER NOT NULL,
    ready_time  INTEGER,
    PRIMARY KEY (position, token)
) STRICT, WITHOUT ROWID;

CREATE INDEX settlement_time ON settlement (queue_id, settle_time);

CREATE TABLE idempotency_key (
    queue_id     INTEGER NOT NULL,
    key          TEXT    NOT NULL,
    position     INTEGER NOT NULL,
    content_hash BLOB    NOT NULL,
    create_time  INTEGER NOT NULL,
    PRIMARY KEY (queue_id, key)
) STRICT, WITHOUT ROWID;

-- One row for each claim call that had a claim id and got messages. Rows are appended
-- in the order of time, so that the oldest are found without an index. held is
-- position (8 bytes, big-endian) and token (16 bytes) of each message.
CREATE TABLE claim_call (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id   INTEGER NOT NULL,
    claim_id   BLOB    NOT NULL,
    worker_id  TEXT    NOT NULL,
    claim_time INTEGER NOT NULL,
    replayed   INTEGER NOT NULL DEFAULT 0,
    held       BLOB    NOT NULL,
    UNIQUE (queue_id, claim_id)
) STRICT;

-- Which messages of a queue with max_in_flight may be leased (L1); the row of the message
-- decides, and a claim removes those that are not.
CREATE TABLE claim_slot (
    queue_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (queue_id, position)
) STRICT, WITHOUT ROWID;

-- The bucket of max_claims_per_second (L2): the rate at which it fills and when it is full
-- again, in nanoseconds.
CREATE TABLE claim_pace (
    queue_id INTEGER PRIMARY KEY,
    rate     REAL    NOT NULL,
    full_ns  INTEGER NOT NULL
) STRICT;

-- The counts of each queue as they were last taken.
CREATE TABLE queue_stats (
    queue_id      INTEGER PRIMARY KEY,
    as_of         INTEGER NOT NULL,
    ready         INTEGER NOT NULL,
    delayed       INTEGER NOT NULL,
    blocked       INTEGER NOT NULL,
    leased        INTEGER NOT NULL,
    lease_expired INTEGER NOT NULL,
    completed     INTEGER NOT NULL,
    dead          INTEGER NOT NULL,
    oldest_ready  INTEGER
) STRICT;

-- When it is time to count again.
CREATE TABLE count_turn (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    next_time INTEGER NOT NULL
) STRICT;

INSERT INTO count_turn (id, next_time) VALUES (1, 0);

-- What transactions of others enqueued and the server has not placed yet (E12). The
-- constraints are what Enqueue checks; their names are what the caller reads.
CREATE TABLE incoming (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id        INTEGER NOT NULL,
    create_time     INTEGER NOT NULL,
    delay           INTEGER,
    available_time  INTEGER,
    expire_time     INTEGER,
    priority        INTEGER NOT NULL,
    max_attempts    INTEGER NOT NULL,
    idempotency_key TEXT    NOT NULL,
    ordering_key    TEXT    NOT NULL,
    wire_bytes      INTEGER NOT NULL,
    payload_limit   INTEGER NOT NULL,
    content_type    TEXT    NOT NULL,
    attributes      TEXT,
    -- Why the row can never become a message; NULL while it may.
    refused         TEXT,
    payload         BLOB    NOT NULL,
    CONSTRAINT payload_too_large CHECK (length(payload) <= payload_limit),
    CONSTRAINT content_type_too_long CHECK (length(CAST(content_type AS BLOB)) <= 255),
    CONSTRAINT idempotency_key_too_long CHECK (length(CAST(idempotency_key AS BLOB)) <= 255),
    CONSTRAINT ordering_key_too_long CHECK (length(CAST(ordering_key AS BLOB)) <= 255),
    CONSTRAINT content_type_holds_nul CHECK (instr(CAST(content_type AS BLOB), x'00') = 0),
    CONSTRAINT idempotency_key_holds_nul CHECK (instr(CAST(idempotency_key AS BLOB), x'00') = 0),
    CONSTRAINT ordering_key_holds_nul CHECK (instr(CAST(ordering_key AS BLOB), x'00') = 0),
    CONSTRAINT priority_out_of_range CHECK (priority BETWEEN -2147483648 AND 2147483647),
    CONSTRAINT max_attempts_out_of_range CHECK (max_attempts BETWEEN 0 AND 2147483647),
    CONSTRAINT delay_out_of_range CHECK (delay BETWEEN 0 AND 315360000000),
    CONSTRAINT delay_and_available_time CHECK (delay IS NULL OR available_time IS NULL),
    CONSTRAINT available_time_out_of_range CHECK (available_time BETWEEN 0 AND 7258118400000),
    CONSTRAINT expire_time_out_of_range CHECK (expire_time BETWEEN 0 AND 7258118400000)
) STRICT;

-- What a constraint cannot say.
-- +goose StatementBegin
CREATE TRIGGER incoming_attributes BEFORE INSERT ON incoming WHEN new.attributes IS NOT NULL
BEGIN
    -- The functions of SQLite take JSON5 too, which others who read the text do not.
    SELECT RAISE(ABORT, 'CHECK constraint failed: attributes_not_json') WHERE NOT json_valid(new.attributes);
    SELECT RAISE(ABORT, 'CHECK constraint failed: attributes_not_text')
        WHERE json_type(new.attributes) <> 'object' OR EXISTS (SELECT 1 FROM json_each(new.attributes) WHERE type <> 'text');
    SELECT RAISE(ABORT, 'CHECK constraint failed: attributes_too_many')
        WHERE (SELECT count(*) FROM json_each(new.attributes)) > 64;
    SELECT RAISE(ABORT, 'CHECK constraint failed: attributes_hold_nul')
        WHERE EXISTS (SELECT 1 FROM json_each(new.attributes)
            WHERE instr(CAST(key AS BLOB), x'00') > 0 OR instr(CAST(value AS BLOB), x'00') > 0);
    SELECT RAISE(ABORT, 'CHECK constraint failed: attributes_too_large')
        WHERE (SELECT sum(length(CAST(key AS BLOB)) + length(CAST(value AS BLOB))) FROM json_each(new.attributes)) > 65536;
END;
-- +goose StatementEnd

-- Messages that were marked and not finished yet (E12).
CREATE TABLE marked (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id INTEGER NOT NULL,
    position INTEGER NOT NULL
) STRICT;

-- UPDATE cannot stand inside another statement in SQLite, so a trigger appends what the
-- mark has marked. It looks at statements that write the outcome, which are no others.
-- +goose StatementBegin
CREATE TRIGGER message_marked AFTER UPDATE OF outcome ON message WHEN new.state = 3 AND old.state = 1
BEGIN
    SELECT RAISE(ABORT, 'CHECK constraint failed: reason_code_too_long') WHERE length(CAST(new.mark_reason_code AS BLOB)) > 255;
    SELECT RAISE(ABORT, 'CHECK constraint failed: reason_code_holds_nul') WHERE instr(CAST(new.mark_reason_code AS BLOB), x'00') > 0;
    SELECT RAISE(ABORT, 'CHECK constraint failed: result_too_large') WHERE length(new.mark_result) > 33554432;
    INSERT INTO marked (queue_id, position) VALUES (new.queue_id, new.position);
END;
-- +goose StatementEnd
