-- Tells what committed transactions have enqueued (E12), in the order in which it is placed: by
-- transaction, then by statement. The scan starts at the bound $1, or at the oldest running
-- transaction where that is earlier, as after a failover. The new bound is the first row seen,
-- or the oldest transaction that ran when this snapshot was made: below it nothing can appear
-- any more, so the dead rows there are never walked over again.
-- Leans on incoming_order.
WITH seen AS MATERIALIZED (
    SELECT i.xid, i.seq, i.queue_id, i.ordering_key, i.idempotency_key, octet_length(i.payload) AS payload_bytes
    FROM queuebox.incoming i
    WHERE i.xid >= least($1::text::xid8, pg_snapshot_xmin(pg_current_snapshot())) AND i.refused IS NULL
    ORDER BY i.xid, i.seq
    LIMIT $2::bigint
)
SELECT clock_timestamp(),
    least(pg_snapshot_xmin(pg_current_snapshot()), (SELECT s.xid FROM seen s ORDER BY s.xid, s.seq LIMIT 1))::text,
    s.xid::text, s.seq, s.queue_id, s.ordering_key, s.idempotency_key IS NOT NULL, s.payload_bytes
FROM (SELECT 1) one LEFT JOIN seen s ON true
ORDER BY s.xid, s.seq
