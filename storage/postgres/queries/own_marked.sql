-- Tells which messages committed transactions have marked (E12). The bound is as in
-- own_incoming.sql.
-- Leans on marked_order.
WITH seen AS MATERIALIZED (
    SELECT k.xid, k.seq, k.queue_id, k.position
    FROM queuebox.marked k
    WHERE k.xid >= least($1::text::xid8, pg_snapshot_xmin(pg_current_snapshot()))
    ORDER BY k.xid, k.seq
    LIMIT $2::bigint
)
SELECT clock_timestamp(),
    least(pg_snapshot_xmin(pg_current_snapshot()), (SELECT s.xid FROM seen s ORDER BY s.xid, s.seq LIMIT 1))::text,
    s.xid::text, s.seq, s.queue_id, s.position
FROM (SELECT 1) one LEFT JOIN seen s ON true
ORDER BY s.xid, s.seq
