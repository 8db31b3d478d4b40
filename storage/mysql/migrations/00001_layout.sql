-- The layout of QueueBox on MySQL and MariaDB; docs/engines.md has the reasons. {{bytes}}
-- stands for the collation that compares by bytes and without padding, which has another
-- name on each of the two. Durations are microseconds, times are UTC. Each statement may run
-- twice: neither database takes a new table back when a migration breaks off.

-- +goose Up
CREATE TABLE IF NOT EXISTS queue (
    queue_id                INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name                    VARCHAR(255) COLLATE {{bytes}} NOT NULL,
    version                 BIGINT NOT NULL DEFAULT 1,
    create_time             DATETIME(6) NOT NULL,
    paused                  BOOLEAN NOT NULL,
    default_lease_us        BIGINT NOT NULL,
    min_lease_us            BIGINT NOT NULL,
    max_lease_us            BIGINT NOT NULL,
    max_attempts            INT NOT NULL,
    retry_min_us            BIGINT NOT NULL,
    retry_max_us            BIGINT NOT NULL,
    retry_multiplier        DOUBLE NOT NULL,
    retry_jitter            DOUBLE NOT NULL,
    max_in_flight           INT NOT NULL,
    max_claims_per_second   DOUBLE NOT NULL,
    ordering_mode           SMALLINT NOT NULL,
    completed_retention_us  BIGINT NOT NULL,
    dead_retention_us       BIGINT NOT NULL,
    max_messages            BIGINT NOT NULL,
    UNIQUE KEY queue_name (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- One row for each live ordering key; its row lock is the lock of the key. blocked_by is the
-- position of the dead message that blocks the key (O7), as long as that message is there.
CREATE TABLE IF NOT EXISTS ordering_key (
    key_id      BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    queue_id    INT NOT NULL,
    blocked_by  BIGINT,
    name        VARCHAR(255) COLLATE {{bytes}} NOT NULL,
    UNIQUE KEY ordering_key_name (queue_id, name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- Live messages alone. id is half of the position, rounded down: a position is odd where the
-- message has an ordering key. state: 0 pending, 1 processing, 3 settling. place: 0 ready,
-- 1 delayed, 2 parked behind the head of its key. urgency is the priority with its sign
-- turned, since an index of MariaDB before 10.8 cannot go down. What a claim or a renewal
-- writes stands in no index.
CREATE TABLE IF NOT EXISTS message (
    id                BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    queue_id          INT NOT NULL,
    place             TINYINT NOT NULL,
    state             TINYINT NOT NULL DEFAULT 0,
    urgency           BIGINT NOT NULL,
    ready_time        DATETIME(6) NOT NULL,
    create_time       DATETIME(6) NOT NULL,
    lease_end         DATETIME(6),
    claim_time        DATETIME(6),
    expire_time       DATETIME(6),
    key_id            BIGINT,
    -- The key that this message is the head of.
    head_of           BIGINT GENERATED ALWAYS AS (CASE WHEN place < 2 THEN key_id END) VIRTUAL,
    token             BINARY(16),
    lease_us          BIGINT,
    attempt           INT NOT NULL DEFAULT 0,
    max_attempts      INT NOT NULL,
    payload_bytes     INT NOT NULL,
    wire_bytes        BIGINT NOT NULL,
    cancel_requested  BOOLEAN NOT NULL DEFAULT FALSE,
    -- The mark: what a transaction of the worker has decided (E12).
    outcome           SMALLINT,
    mark_action       SMALLINT,
    mark_dead_reason  SMALLINT,
    settle_time       DATETIME(6),
    mark_delay_us     BIGINT,
    mark_error        TEXT,
    mark_reason_code  VARCHAR(255),
    mark_result       LONGBLOB,
    worker_id         VARCHAR(255) NOT NULL DEFAULT '',
    last_error        TEXT,
    reason_code       VARCHAR(255) NOT NULL DEFAULT '',
    content_type      VARCHAR(255) NOT NULL,
    idempotency_key   VARCHAR(255) NOT NULL,
    attributes        MEDIUMTEXT,
    payload           LONGBLOB NOT NULL,
    -- The order of a claim. The primary key, which ends it, is in every index by itself.
    KEY message_ready (queue_id, place, urgency, ready_time, id),
    -- Delayed messages by the time at which they become ready.
    KEY message_delayed (queue_id, place, ready_time, id),
    -- A key has one head: the database itself refuses a second one (O1).
    UNIQUE KEY message_head (head_of),
    -- Those of a key, in their order.
    KEY message_key (key_id, place, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- Completed messages. The token makes a row the settlement history of its completion too.
CREATE TABLE IF NOT EXISTS completed (
    id               BIGINT NOT NULL PRIMARY KEY,
    queue_id         INT NOT NULL,
    finish_time      DATETIME(6) NOT NULL,
    create_time      DATETIME(6) NOT NULL,
    ready_time       DATETIME(6) NOT NULL,
    expire_time      DATETIME(6),
    token            BINARY(16) NOT NULL,
    priority         INT NOT NULL,
    attempt          INT NOT NULL,
    max_attempts     INT NOT NULL,
    payload_bytes    INT NOT NULL,
    worker_id        VARCHAR(255) NOT NULL,
    last_error       TEXT,
    reason_code      VARCHAR(255) NOT NULL,
    content_type     VARCHAR(255) NOT NULL,
    -- Empty where there is none: a position is odd where there is one.
    ordering_key     VARCHAR(255) NOT NULL,
    idempotency_key  VARCHAR(255) NOT NULL,
    attributes       MEDIUMTEXT,
    result           LONGBLOB,
    -- Queue and position of the messages that the completion made (S10), as JSON.
    follow_ups       MEDIUMTEXT,
    payload          LONGBLOB NOT NULL,
    KEY completed_finish (queue_id, finish_time, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- Dead and cancelled messages (state 4 and 5). action is 0 where no settlement ended the message.
CREATE TABLE IF NOT EXISTS dead (
    id               BIGINT NOT NULL PRIMARY KEY,
    queue_id         INT NOT NULL,
    state            TINYINT NOT NULL,
    finish_time      DATETIME(6) NOT NULL,
    create_time      DATETIME(6) NOT NULL,
    ready_time       DATETIME(6) NOT NULL,
    expire_time      DATETIME(6),
    token            BINARY(16),
    action           SMALLINT NOT NULL,
    dead_reason      SMALLINT NOT NULL,
    priority         INT NOT NULL,
    attempt          INT NOT NULL,
    max_attempts     INT NOT NULL,
    payload_bytes    INT NOT NULL,
    wire_bytes       BIGINT NOT NULL,
    worker_id        VARCHAR(255) NOT NULL,
    last_error       TEXT,
    reason_code      VARCHAR(255) NOT NULL,
    content_type     VARCHAR(255) NOT NULL,
    ordering_key     VARCHAR(255) NOT NULL,
    idempotency_key  VARCHAR(255) NOT NULL,
    attributes       MEDIUMTEXT,
    payload          LONGBLOB NOT NULL,
    -- Retention takes the oldest of a queue and state first.
    KEY dead_finish (queue_id, state, finish_time, id),
    KEY dead_queue (queue_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- The settlement history of everything but completions (S5).
CREATE TABLE IF NOT EXISTS settlement (
    id              BIGINT NOT NULL,
    token           BINARY(16) NOT NULL,
    queue_id        INT NOT NULL,
    settle_time     DATETIME(6) NOT NULL,
    available_time  DATETIME(6),
    action          SMALLINT NOT NULL,
    outcome         SMALLINT NOT NULL,
    dead_reason     SMALLINT NOT NULL,
    PRIMARY KEY (id, token),
    KEY settlement_time (queue_id, settle_time)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- Idempotency keys of messages that have one. position is 0 only inside the transaction that
-- inserts the row.
CREATE TABLE IF NOT EXISTS idempotency_key (
    queue_id      INT NOT NULL,
    name          VARCHAR(255) COLLATE {{bytes}} NOT NULL,
    position      BIGINT NOT NULL,
    create_time   DATETIME(6) NOT NULL,
    content_hash  BINARY(32) NOT NULL,
    PRIMARY KEY (queue_id, name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- One row for each claim call that has an id and got messages (C14). held is position
-- (8 bytes, big-endian) and token (16 bytes) of each message.
CREATE TABLE IF NOT EXISTS claim_call (
    queue_id    INT NOT NULL,
    claim_id    BINARY(16) NOT NULL,
    claim_time  DATETIME(6) NOT NULL,
    replayed    BOOLEAN NOT NULL DEFAULT FALSE,
    worker_id   VARCHAR(255) NOT NULL,
    held        LONGBLOB NOT NULL,
    PRIMARY KEY (queue_id, claim_id),
    KEY claim_call_time (claim_time)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- One row for each queue that ever had a limit (L1, L2); its row lock is that of the limit.
-- rate and full_ns are the bucket of max_claims_per_second. in_flight says that leases are
-- counted, since set_time; those that were granted before are looked for at fill_time.
CREATE TABLE IF NOT EXISTS claim_limit (
    queue_id   INT NOT NULL PRIMARY KEY,
    in_flight  BOOLEAN NOT NULL,
    rate       DOUBLE NOT NULL DEFAULT 0,
    full_ns    BIGINT NOT NULL DEFAULT 0,
    set_time   DATETIME(6) NOT NULL,
    fill_time  DATETIME(6)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- Which messages of a queue with max_in_flight may be leased (L1). The row of the message
-- decides; a claim removes those that are not.
CREATE TABLE IF NOT EXISTS claim_slot (
    queue_id  INT NOT NULL,
    id        BIGINT NOT NULL,
    PRIMARY KEY (queue_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- The counts of each queue as they were last taken.
CREATE TABLE IF NOT EXISTS queue_stats (
    queue_id       INT NOT NULL PRIMARY KEY,
    as_of          DATETIME(6) NOT NULL,
    ready          BIGINT NOT NULL,
    delayed_count  BIGINT NOT NULL,
    blocked        BIGINT NOT NULL,
    leased         BIGINT NOT NULL,
    lease_expired  BIGINT NOT NULL,
    completed      BIGINT NOT NULL,
    dead           BIGINT NOT NULL,
    oldest_ready   DATETIME(6)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- Whose turn it is to count (1): one server at a time, until it has ended or has not been heard
-- of for a few seconds. The other two rows are only locked: 2 by who removes what has passed
-- its retention, 3 by who makes a queue.
CREATE TABLE IF NOT EXISTS count_turn (
    id          INT NOT NULL PRIMARY KEY,
    next_time   DATETIME(6) NOT NULL,
    holder      BINARY(16),
    held_until  DATETIME(6) NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};
INSERT INTO count_turn (id, next_time, held_until)
VALUES (1, '1970-01-01', '1970-01-01'), (2, '1970-01-01', '1970-01-01'), (3, '1970-01-01', '1970-01-01')
ON DUPLICATE KEY UPDATE id = count_turn.id;

-- What transactions of others enqueue (E12); the server places it after the commit. The
-- constraints are what Enqueue checks; their names are what the caller of the statement reads.
CREATE TABLE IF NOT EXISTS incoming (
    id               BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    queue_id         INT NOT NULL,
    priority         INT NOT NULL,
    max_attempts     INT NOT NULL,
    wire_bytes       BIGINT NOT NULL,
    payload_limit    BIGINT NOT NULL,
    delay_us         BIGINT,
    available_time   DATETIME(6),
    expire_time      DATETIME(6),
    create_time      DATETIME(6) NOT NULL,
    content_type     VARCHAR(255) NOT NULL,
    ordering_key     VARCHAR(255) NOT NULL,
    idempotency_key  VARCHAR(255) NOT NULL,
    attributes       MEDIUMTEXT,
    payload          LONGBLOB NOT NULL,
    -- Why the row can never become a message; null while it may.
    refused          TEXT
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- Which messages transactions of others have marked (E12).
CREATE TABLE IF NOT EXISTS marked (
    seq       BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    queue_id  INT NOT NULL,
    id        BIGINT NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};
