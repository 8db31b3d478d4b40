-- The layout of QueueBox on MySQL and MariaDB; docs/engines.md has the reasons. {{bytes}}
-- stands for the collation that compares by bytes and without padding, which has another
-- name on each of the two, and {{utc}} for the time in a session of anybody. Durations are
-- microseconds, times are UTC. The row format is named because older ones, which a server may
-- have as its default, do not take a key of 255 characters. Each statement may run
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
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- One row for each live ordering key; its row lock is the lock of the key. blocked_by is the
-- position of the dead message that blocks the key (O7), as long as that message is there.
CREATE TABLE IF NOT EXISTS ordering_key (
    key_id      BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    queue_id    INT NOT NULL,
    blocked_by  BIGINT,
    name        VARCHAR(255) COLLATE {{bytes}} NOT NULL,
    UNIQUE KEY ordering_key_name (queue_id, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

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
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

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
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

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
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

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
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- Idempotency keys of messages that have one. position is 0 only inside the transaction that
-- inserts the row.
CREATE TABLE IF NOT EXISTS idempotency_key (
    queue_id      INT NOT NULL,
    name          VARCHAR(255) COLLATE {{bytes}} NOT NULL,
    position      BIGINT NOT NULL,
    create_time   DATETIME(6) NOT NULL,
    content_hash  BINARY(32) NOT NULL,
    PRIMARY KEY (queue_id, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

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
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

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
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- Which messages of a queue with max_in_flight may be leased (L1); the row of the message
-- decides. A slot whose message is not leased any more is given to the next one, so rows are
-- written in place and there are no more of them than leases at a time.
CREATE TABLE IF NOT EXISTS claim_slot (
    queue_id  INT NOT NULL,
    slot      INT NOT NULL,
    id        BIGINT NOT NULL,
    PRIMARY KEY (queue_id, slot)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

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
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- Whose turn it is to count (1): one server at a time, until it has ended or has not been heard
-- of for a few seconds. The other two rows are only locked: 2 by who removes what has passed
-- its retention, 3 by who makes a queue.
CREATE TABLE IF NOT EXISTS count_turn (
    id          INT NOT NULL PRIMARY KEY,
    next_time   DATETIME(6) NOT NULL,
    holder      BINARY(16),
    held_until  DATETIME(6) NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};
INSERT INTO count_turn (id, next_time, held_until)
VALUES (1, '1970-01-01', '1970-01-01'), (2, '1970-01-01', '1970-01-01'), (3, '1970-01-01', '1970-01-01')
ON DUPLICATE KEY UPDATE id = count_turn.id;

-- What transactions of others enqueue (E12); the server places it after the commit.
CREATE TABLE IF NOT EXISTS incoming (
    id               BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    queue_id         INT NOT NULL,
    priority         INT NOT NULL,
    max_attempts     INT NOT NULL,
    wire_bytes       BIGINT NOT NULL,
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
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- Which messages transactions of others have marked (E12).
CREATE TABLE IF NOT EXISTS marked (
    seq       BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    queue_id  INT NOT NULL,
    id        BIGINT NOT NULL,
    -- The ordering key of the message, so that it is locked before the message is looked at.
    key_id    BIGINT
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE={{bytes}};

-- What transactions of others run (E12). The procedures have the rights of who made them: a
-- role that may execute them needs no other, and cannot read the tokens of others. They are
-- called in a transaction that is open, at any isolation level; docs/own-transaction.md tells
-- the rest. The clock is the time of the statement and what has passed since, in UTC, whatever
-- the time zone of the session is.

-- The message and the token that the wire names: base 32, five bits a letter, with an alphabet
-- that leaves i, l, o and u out. What no server made names nothing: null.
DROP PROCEDURE IF EXISTS queuebox_named;
-- +goose StatementBegin
CREATE PROCEDURE queuebox_named(
    IN p_message_id LONGTEXT CHARACTER SET utf8mb4 COLLATE {{bytes}},
    IN p_claim_token LONGTEXT CHARACTER SET utf8mb4 COLLATE {{bytes}},
    OUT o_queue_id BIGINT, OUT o_position BIGINT UNSIGNED, OUT o_token BINARY(16))
    NO SQL SQL SECURITY DEFINER
BEGIN
    DECLARE v_text VARCHAR(64) CHARACTER SET utf8mb4 COLLATE {{bytes}};
    DECLARE v_hex VARCHAR(80) CHARACTER SET ascii;
    SET o_queue_id = NULL, o_position = NULL, o_token = NULL;
    IF CHAR_LENGTH(p_message_id) = 27 AND CHAR_LENGTH(p_claim_token) = 33
        AND p_message_id REGEXP '^m[0-9a-hjkmnp-tv-z]{26}$' AND p_claim_token REGEXP '^t[0-9a-hjkmnp-tv-z]{32}$' THEN
        -- The digits of CONV are 0 to 9 and a to v: every letter behind a gap moves down to it.
        SET v_text = CONCAT(SUBSTRING(p_message_id, 2), SUBSTRING(p_claim_token, 2));
        SET v_text = REPLACE(REPLACE(REPLACE(v_text, 'j', 'i'), 'k', 'j'), 'm', 'k');
        SET v_text = REPLACE(REPLACE(REPLACE(v_text, 'n', 'l'), 'p', 'm'), 'q', 'n');
        SET v_text = REPLACE(REPLACE(REPLACE(v_text, 'r', 'o'), 's', 'p'), 't', 'q');
        SET v_text = REPLACE(REPLACE(REPLACE(v_text, 'v', 'r'), 'w', 's'), 'x', 't');
        SET v_text = REPLACE(REPLACE(v_text, 'y', 'u'), 'z', 'v');
        -- Eight letters are five bytes. The queue is the first four of the id, the position the eight behind.
        SET v_hex = CONCAT(
            LPAD(CONV(SUBSTRING(v_text, 1, 8), 32, 16), 10, '0'), LPAD(CONV(SUBSTRING(v_text, 9, 8), 32, 16), 10, '0'),
            LPAD(CONV(SUBSTRING(v_text, 17, 8), 32, 16), 10, '0'), LPAD(CONV(SUBSTRING(v_text, 27, 8), 32, 16), 10, '0'),
            LPAD(CONV(SUBSTRING(v_text, 35, 8), 32, 16), 10, '0'), LPAD(CONV(SUBSTRING(v_text, 43, 8), 32, 16), 10, '0'),
            LPAD(CONV(SUBSTRING(v_text, 51, 8), 32, 16), 10, '0'));
        SET o_queue_id = CAST(CONV(SUBSTRING(v_hex, 1, 8), 16, 10) AS UNSIGNED),
            o_position = CAST(CONV(SUBSTRING(v_hex, 9, 16), 16, 10) AS UNSIGNED),
            o_token = UNHEX(SUBSTRING(v_hex, 31, 32));
    END IF;
END
-- +goose StatementEnd

-- The mark: 1 completes, 2 retries, 3 dead-letters. The row is locked first, and the fence (id,
-- state, token, lease) is judged of the row that the lock returned, by a clock that is read
-- after it (S13); a locking read sees what is committed, whatever the snapshot of the
-- transaction is. State 3 takes the message out of every other fence; a lease that never ends
-- is the second lock. Every value that the server needs to finish is decided here. The row of
-- marked comes first: where a statement fails and the caller commits all the same, a mark
-- without a settlement does nothing, and a settlement without a mark would never be finished.
-- No row: the claim is lost, roll back. Leans on the primary keys.
DROP PROCEDURE IF EXISTS queuebox_mark;
-- +goose StatementBegin
CREATE PROCEDURE queuebox_mark(
    IN p_queue_id INT, IN p_action INT, IN p_max_result BIGINT,
    IN p_message_id LONGTEXT CHARACTER SET utf8mb4 COLLATE {{bytes}},
    IN p_claim_token LONGTEXT CHARACTER SET utf8mb4 COLLATE {{bytes}},
    IN p_delay_ms BIGINT,
    IN p_reason_code LONGTEXT CHARACTER SET utf8mb4 COLLATE {{bytes}},
    IN p_error LONGTEXT CHARACTER SET utf8mb4 COLLATE {{bytes}},
    IN p_result LONGBLOB)
    MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
    DECLARE v_queue_id BIGINT;
    DECLARE v_position BIGINT UNSIGNED;
    DECLARE v_token BINARY(16);
    DECLARE v_now DATETIME(6);
    DECLARE v_state INT;
    DECLARE v_row_token BINARY(16);
    DECLARE v_lease_end DATETIME(6);
    DECLARE v_expire_time DATETIME(6);
    DECLARE v_attempt INT;
    DECLARE v_max_attempts INT;
    DECLARE v_cancel BOOLEAN;
    DECLARE v_key_id BIGINT;
    DECLARE v_outcome INT;
    DECLARE v_dead_reason INT DEFAULT 0;
    DECLARE v_delay_us BIGINT;
    DECLARE v_cut INT DEFAULT 2000;
    DECLARE v_marked INT DEFAULT 0;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_state = NULL;

    IF OCTET_LENGTH(p_result) > p_max_result THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'queuebox: result_too_large';
    END IF;
    IF OCTET_LENGTH(p_reason_code) > 255 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'queuebox: reason_code_too_long';
    END IF;
    IF LOCATE(CHAR(0), CAST(p_reason_code AS BINARY)) > 0 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'queuebox: reason_code_holds_nul';
    END IF;
    CALL queuebox_named(p_message_id, p_claim_token, v_queue_id, v_position, v_token);
    IF v_queue_id = p_queue_id THEN
        SELECT m.state, m.token, m.lease_end, m.attempt, m.max_attempts, m.expire_time, m.cancel_requested, m.key_id
            INTO v_state, v_row_token, v_lease_end, v_attempt, v_max_attempts, v_expire_time, v_cancel, v_key_id
            FROM message AS m WHERE m.id = v_position DIV 2 AND m.queue_id = p_queue_id FOR UPDATE;
    END IF;
    SET v_now = {{utc}};
    IF v_state = 1 AND v_row_token = v_token AND v_lease_end > v_now AND v_position MOD 2 = (v_key_id IS NOT NULL) THEN
        CASE
            WHEN p_action = 1 THEN SET v_outcome = 1;
            WHEN p_action = 3 THEN SET v_outcome = 3, v_dead_reason = 1;
            WHEN v_cancel THEN SET v_outcome = 5;
            WHEN v_expire_time <= v_now THEN SET v_outcome = 3, v_dead_reason = 4;
            WHEN v_max_attempts > 0 AND v_attempt >= v_max_attempts THEN SET v_outcome = 3, v_dead_reason = 2;
            ELSE SET v_outcome = 2;
        END CASE;
        IF v_outcome = 2 AND p_delay_ms IS NOT NULL THEN
            SET v_delay_us = LEAST(GREATEST(p_delay_ms, 0), 315360000000) * 1000;
        ELSEIF v_outcome = 2 THEN
            -- The policy of the queue, as for a Retry without a delay.
            SET v_delay_us = (
                SELECT CASE WHEN q.retry_min_us <= 0 OR q.retry_multiplier <= 0 THEN 0
                    ELSE ROUND((1 - q.retry_jitter * RAND()) * LEAST(q.retry_max_us,
                        q.retry_min_us * EXP(LEAST(600, GREATEST(-600, (v_attempt - 1) * LN(q.retry_multiplier)))))) END
                FROM queue AS q WHERE q.queue_id = p_queue_id);
        END IF;
        -- At most 2000 bytes, cut where a character begins (S9).
        IF OCTET_LENGTH(p_error) > 2000 THEN
            WHILE ASCII(SUBSTRING(CAST(p_error AS BINARY), v_cut + 1, 1)) & 192 = 128 DO
                SET v_cut = v_cut - 1;
            END WHILE;
            SET p_error = CONVERT(SUBSTRING(CAST(p_error AS BINARY), 1, v_cut) USING utf8mb4);
        END IF;
        INSERT INTO marked (queue_id, id, key_id) VALUES (p_queue_id, v_position DIV 2, v_key_id);
        UPDATE message AS m
            SET m.state = 3, m.lease_end = '9999-12-31 23:59:59.999999', m.outcome = v_outcome, m.mark_action = p_action,
                m.mark_dead_reason = v_dead_reason, m.settle_time = v_now, m.mark_delay_us = v_delay_us,
                m.mark_error = p_error, m.mark_reason_code = p_reason_code, m.mark_result = p_result
            WHERE m.id = v_position DIV 2 AND m.queue_id = p_queue_id AND m.state = 1 AND m.token = v_token AND m.lease_end > v_now;
        SET v_marked = ROW_COUNT();
    END IF;
    SELECT CASE v_outcome WHEN 1 THEN 'COMPLETED' WHEN 2 THEN 'RETRIED' WHEN 3 THEN 'DEAD' ELSE 'CANCELLED' END AS outcome,
        CASE v_dead_reason WHEN 1 THEN 'REJECTED' WHEN 2 THEN 'ATTEMPTS_EXHAUSTED' WHEN 4 THEN 'EXPIRED' ELSE '' END AS dead_reason,
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', v_now) DIV 1000 AS settle_time,
        (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', v_now) + v_delay_us) DIV 1000 AS available_time
    FROM (SELECT 1 AS one) AS one WHERE v_marked = 1;
END
-- +goose StatementEnd

-- What a claim was settled as: by a mark whose transaction has committed, or by anybody with
-- this token. No row where it was not settled, or is past the retention of the history.
-- Leans on the primary keys.
DROP PROCEDURE IF EXISTS queuebox_outcome;
-- +goose StatementBegin
CREATE PROCEDURE queuebox_outcome(
    IN p_queue_id INT,
    IN p_message_id LONGTEXT CHARACTER SET utf8mb4 COLLATE {{bytes}},
    IN p_claim_token LONGTEXT CHARACTER SET utf8mb4 COLLATE {{bytes}})
    READS SQL DATA SQL SECURITY DEFINER
BEGIN
    DECLARE v_queue_id BIGINT;
    DECLARE v_position BIGINT UNSIGNED;
    DECLARE v_token BINARY(16);
    CALL queuebox_named(p_message_id, p_claim_token, v_queue_id, v_position, v_token);
    SELECT CASE f.outcome WHEN 1 THEN 'COMPLETED' WHEN 2 THEN 'RETRIED' WHEN 3 THEN 'DEAD' WHEN 4 THEN 'RELEASED' ELSE 'CANCELLED' END AS outcome,
        CASE f.dead_reason WHEN 1 THEN 'REJECTED' WHEN 2 THEN 'ATTEMPTS_EXHAUSTED' WHEN 4 THEN 'EXPIRED' ELSE '' END AS dead_reason,
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', f.settle_time) DIV 1000 AS settle_time,
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', f.available_time) DIV 1000 AS available_time
    FROM (
        SELECT m.outcome, m.mark_dead_reason AS dead_reason, m.settle_time,
            m.settle_time + INTERVAL m.mark_delay_us MICROSECOND AS available_time
        FROM message AS m
        WHERE m.id = v_position DIV 2 AND m.queue_id = p_queue_id AND m.state = 3 AND m.token = v_token
        UNION ALL
        SELECT s.outcome, s.dead_reason, s.settle_time, s.available_time
        FROM settlement AS s
        WHERE s.id = v_position DIV 2 AND s.token = v_token AND s.queue_id = p_queue_id AND s.action <> 5
        UNION ALL
        SELECT 1, 0, c.finish_time, NULL
        FROM completed AS c
        WHERE c.id = v_position DIV 2 AND c.queue_id = p_queue_id AND c.token = v_token
        UNION ALL
        SELECT CASE d.state WHEN 5 THEN 5 ELSE 3 END, d.dead_reason, d.finish_time, NULL
        FROM dead AS d
        WHERE d.id = v_position DIV 2 AND d.queue_id = p_queue_id AND d.token = v_token AND d.action NOT IN (0, 5)
    ) AS f
    WHERE v_queue_id = p_queue_id
    LIMIT 1;
END
-- +goose StatementEnd

-- Enqueues: appends to incoming, and the server makes a message of it after the commit. All but
-- the payload may be null; times are milliseconds since the epoch. What Enqueue refuses, this
-- refuses with a text that names it. Leans on the primary keys.
DROP PROCEDURE IF EXISTS queuebox_enqueue;
-- +goose StatementBegin
CREATE PROCEDURE queuebox_enqueue(
    IN p_queue_id INT, IN p_overhead BIGINT, IN p_max_payload BIGINT,
    IN p_payload LONGBLOB,
    IN p_content_type LONGTEXT CHARACTER SET utf8mb4 COLLATE {{bytes}},
    IN p_attributes LONGTEXT CHARACTER SET utf8mb4 COLLATE {{bytes}},
    IN p_idempotency_key LONGTEXT CHARACTER SET utf8mb4 COLLATE {{bytes}},
    IN p_ordering_key LONGTEXT CHARACTER SET utf8mb4 COLLATE {{bytes}},
    IN p_priority BIGINT, IN p_delay_ms BIGINT, IN p_available_time BIGINT, IN p_max_attempts BIGINT, IN p_expire_time BIGINT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
BEGIN
    DECLARE v_wrong VARCHAR(64) CHARACTER SET utf8mb4;
    DECLARE v_keys LONGTEXT CHARACTER SET utf8mb4 COLLATE {{bytes}};
    DECLARE v_values LONGTEXT CHARACTER SET utf8mb4 COLLATE {{bytes}};
    DECLARE v_text LONGTEXT CHARACTER SET utf8mb4 COLLATE {{bytes}};
    DECLARE v_n INT DEFAULT 0;
    DECLARE v_count INT DEFAULT 0;
    DECLARE v_bytes BIGINT DEFAULT 0;

    SET p_content_type = COALESCE(p_content_type, ''), p_idempotency_key = COALESCE(p_idempotency_key, ''),
        p_ordering_key = COALESCE(p_ordering_key, ''), p_priority = COALESCE(p_priority, 0), p_max_attempts = COALESCE(p_max_attempts, 0);
    SET v_wrong = CASE
        WHEN NOT EXISTS (SELECT 1 FROM queue AS q WHERE q.queue_id = p_queue_id) THEN 'no_such_queue'
        WHEN p_payload IS NULL THEN 'payload_is_null'
        WHEN OCTET_LENGTH(p_payload) > p_max_payload THEN 'payload_too_large'
        WHEN OCTET_LENGTH(p_content_type) > 255 THEN 'content_type_too_long'
        WHEN OCTET_LENGTH(p_idempotency_key) > 255 THEN 'idempotency_key_too_long'
        WHEN OCTET_LENGTH(p_ordering_key) > 255 THEN 'ordering_key_too_long'
        WHEN LOCATE(CHAR(0), CAST(p_content_type AS BINARY)) > 0 THEN 'content_type_holds_nul'
        WHEN LOCATE(CHAR(0), CAST(p_idempotency_key AS BINARY)) > 0 THEN 'idempotency_key_holds_nul'
        WHEN LOCATE(CHAR(0), CAST(p_ordering_key AS BINARY)) > 0 THEN 'ordering_key_holds_nul'
        WHEN p_priority NOT BETWEEN -2147483648 AND 2147483647 THEN 'priority_out_of_range'
        WHEN p_max_attempts NOT BETWEEN 0 AND 2147483647 THEN 'max_attempts_out_of_range'
        WHEN p_delay_ms NOT BETWEEN 0 AND 315360000000 THEN 'delay_out_of_range'
        WHEN p_delay_ms IS NOT NULL AND p_available_time IS NOT NULL THEN 'delay_and_available_time'
        WHEN p_available_time NOT BETWEEN 0 AND 7258118400000 THEN 'available_time_out_of_range'
        WHEN p_expire_time NOT BETWEEN 0 AND 7258118400000 THEN 'expire_time_out_of_range'
        WHEN p_attributes IS NULL THEN NULL
        WHEN NOT JSON_VALID(p_attributes) THEN 'attributes_not_json'
        -- MariaDB takes a backslash before any letter. What stands behind a doubled one is no escape.
        WHEN REPLACE(p_attributes, '\\\\', '') REGEXP '\\\\[^"/bfnrtu]' THEN 'attributes_not_json'
        WHEN JSON_TYPE(p_attributes) <> 'OBJECT' THEN 'attributes_not_text'
        WHEN JSON_LENGTH(p_attributes) > 64 THEN 'attributes_too_many'
    END;
    IF v_wrong IS NULL AND p_attributes IS NOT NULL THEN
        SET v_count = JSON_LENGTH(p_attributes), v_keys = JSON_KEYS(p_attributes), v_values = JSON_EXTRACT(p_attributes, '$.*');
        WHILE v_n < v_count DO
            SET v_text = JSON_UNQUOTE(JSON_EXTRACT(v_keys, CONCAT('$[', v_n, ']')));
            -- A key that stands there twice is listed once, and the last value holds.
            SET v_bytes = v_bytes + COALESCE(OCTET_LENGTH(v_text), 0);
            IF LOCATE(CHAR(0), CAST(v_text AS BINARY)) > 0 THEN
                SET v_wrong = 'attributes_hold_nul';
            END IF;
            SET v_text = JSON_EXTRACT(v_values, CONCAT('$[', v_n, ']'));
            IF JSON_TYPE(v_text) <> 'STRING' THEN
                SET v_wrong = 'attributes_not_text';
            END IF;
            SET v_text = JSON_UNQUOTE(v_text);
            SET v_bytes = v_bytes + OCTET_LENGTH(v_text);
            IF LOCATE(CHAR(0), CAST(v_text AS BINARY)) > 0 THEN
                SET v_wrong = 'attributes_hold_nul';
            END IF;
            SET v_n = v_n + 1;
        END WHILE;
        IF v_bytes > 65536 THEN
            SET v_wrong = COALESCE(v_wrong, 'attributes_too_large');
        END IF;
    END IF;
    IF v_wrong IS NOT NULL THEN
        SET v_wrong = CONCAT('queuebox: ', v_wrong);
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_wrong;
    END IF;
    INSERT INTO incoming (queue_id, priority, max_attempts, wire_bytes, delay_us, available_time, expire_time, create_time,
        content_type, ordering_key, idempotency_key, attributes, payload)
    VALUES (p_queue_id, p_priority, p_max_attempts,
        OCTET_LENGTH(p_payload) + p_overhead + OCTET_LENGTH(p_content_type) + OCTET_LENGTH(p_idempotency_key)
            + OCTET_LENGTH(p_ordering_key) + v_bytes + 16 * v_count,
        p_delay_ms * 1000, TIMESTAMP('1970-01-01') + INTERVAL p_available_time * 1000 MICROSECOND,
        TIMESTAMP('1970-01-01') + INTERVAL p_expire_time * 1000 MICROSECOND, {{utc}},
        p_content_type, p_ordering_key, p_idempotency_key, p_attributes, p_payload);
END
-- +goose StatementEnd
