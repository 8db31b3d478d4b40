-- Puts every ordering key right whose lock the transaction has, by the setting that
-- lock_keys.sql or lock_names.sql left, and tells in which queues a message became the head of
-- its key. It runs after all that the transaction does to messages of the keys, in a statement
-- of its own. The first of the parked messages becomes the head where there is none, or where
-- it comes before the head (O5, O7); a head that somebody holds stays (O1, O2): one that is
-- leased, settling, or locked by a claim or a user whose transaction is open. Nothing is
-- promoted from behind the dead message that blocks the key; where that is there no more, or
-- the queue passes over dead ones, the block is lifted. A head steps back also where the message
-- before it is locked by somebody, so that it does not go first (O5): the key has no head then. The
-- sweep of the keys comes back for it, and for every other row that is locked (O9).
-- Leans on ordering_key_pkey, message_head, message_parked, message_pkey, queue_pkey, dead_pkey.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now),
keys AS MATERIALIZED (
    SELECT k.tid, k.queue_id, k.blocked_by, k.blocked,
        (SELECT m.position FROM queuebox.message m WHERE m.key_id = k.key_id AND m.place < 2 LIMIT 1) AS head,
        (SELECT m.position FROM queuebox.message m WHERE m.key_id = k.key_id AND m.place = 2
            ORDER BY m.position LIMIT 1) AS next
    FROM unnest(string_to_array(current_setting('queuebox.keys', true), ',')::bigint[]) AS u (key_id)
    CROSS JOIN LATERAL (
        SELECT k.ctid AS tid, k.key_id, k.queue_id, k.blocked_by,
            CASE WHEN k.blocked_by IS NULL THEN false ELSE coalesce(
                (SELECT q.ordering_mode = 2 FROM queuebox.queue q WHERE q.queue_id = k.queue_id)
                AND (SELECT d.state = 4 FROM queuebox.dead d WHERE d.queue_id = k.queue_id AND d.position = k.blocked_by),
                false) END AS blocked
        FROM queuebox.ordering_key k
        WHERE k.key_id = u.key_id
        LIMIT 1
    ) k
),
unblocked AS (
    UPDATE queuebox.ordering_key k
    SET blocked_by = NULL
    FROM keys s
    WHERE k.ctid = s.tid AND s.blocked_by IS NOT NULL AND NOT s.blocked
),
-- tid is null where somebody has locked the row.
nexts AS MATERIALIZED (
    SELECT s.queue_id, s.head, (
        SELECT m.ctid FROM queuebox.message m
        WHERE m.queue_id = s.queue_id AND m.position = s.next
        FOR UPDATE SKIP LOCKED
    ) AS tid
    FROM keys s
    WHERE (s.head IS NULL OR s.next < s.head) AND (NOT s.blocked OR s.next < s.blocked_by)
),
-- What is tested of the head stands where it is locked, so that it is tested again on a row
-- that a claim has changed meanwhile.
heads AS MATERIALIZED (
    SELECT m.tid, n.head, n.tid AS next
    FROM nexts n CROSS JOIN LATERAL (
        SELECT m.ctid AS tid FROM queuebox.message m
        WHERE m.queue_id = n.queue_id AND m.position = n.head
          AND (m.state = 0 OR (m.state = 1 AND m.lease_end <= clock_timestamp()))
        FOR UPDATE SKIP LOCKED
    ) m
    WHERE n.head IS NOT NULL
),
back AS (
    UPDATE queuebox.message m
    SET place = 2
    FROM heads h
    WHERE m.ctid = h.tid
    RETURNING h.next
),
-- A message that takes the place of a head is found through the step back of that one, so
-- that there are never two at once.
promoted AS (
    UPDATE queuebox.message m
    SET place = CASE WHEN m.ready_time > clock.now THEN 1 ELSE 0 END,
        ready_time = greatest(m.ready_time, clock.now)
    FROM (
        SELECT n.tid FROM nexts n WHERE n.head IS NULL
        UNION ALL
        SELECT b.next FROM back b
    ) p, clock
    WHERE m.ctid = p.tid
    RETURNING m.queue_id
)
-- held says that a pending head was passed over which somebody had locked, or that one stepped back
-- behind a message which somebody had locked. He may have been a claim that takes other messages
-- than this one.
SELECT DISTINCT p.queue_id, false AS held FROM promoted p
UNION ALL
SELECT NULL, true
WHERE EXISTS (SELECT 1 FROM heads h WHERE h.next IS NULL)
   OR EXISTS (
    SELECT 1 FROM nexts n
    WHERE n.head IS NOT NULL AND NOT EXISTS (SELECT 1 FROM heads h WHERE h.head = n.head)
      AND EXISTS (SELECT 1 FROM queuebox.message m
          WHERE m.queue_id = n.queue_id AND m.position = n.head AND CASE m.state WHEN 0 THEN true ELSE false END)
)
