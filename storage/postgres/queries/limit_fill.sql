-- Finds the leases that were granted while nobody counted (L1): at the first claim after
-- max_in_flight was set, and, since a claim that began before may commit after, a second
-- and twelve seconds later once more; no statement of a server runs that long. Does nothing
-- at all where it is not due. Leans on claim_limit_pkey, message_ready.
WITH due AS MATERIALIZED (
    UPDATE queuebox.claim_limit l
    SET fill_time = CASE
        WHEN clock_timestamp() < l.set_time + interval '1 second' THEN l.set_time + interval '1 second'
        WHEN clock_timestamp() < l.set_time + interval '12 seconds' THEN l.set_time + interval '12 seconds'
    END
    WHERE l.queue_id = $1::integer AND l.fill_time <= clock_timestamp()
    RETURNING l.queue_id
),
filled AS (
    INSERT INTO queuebox.claim_slot (queue_id, position)
    SELECT m.queue_id, m.position
    FROM due d JOIN queuebox.message m ON m.queue_id = d.queue_id AND m.place = 0
    WHERE m.state IN (1, 3)
      AND m.position NOT IN (SELECT s.position FROM queuebox.claim_slot s WHERE s.queue_id = $1)
)
SELECT count(*) FROM due
