-- Lists the hours of completed and settlement that are over for some queue: every row of it there
-- has passed what the queue keeps. The hour stands in the name of its partition. An hour that
-- is over for all queues, and for one hour more, may be dropped, where this role may do that;
-- queue_id is null then. Rows of other hours are to be deleted one by one, but only where the
-- drop is more than $1 microseconds away: a drop costs nothing. The oldest hours first.
-- A look at the catalog, and one at the position index for each queue and hour.
WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS now),
longest AS MATERIALIZED (
    SELECT coalesce(max(q.completed_retention_us), 0) AS completed_us,
        greatest(coalesce(max(q.completed_retention_us), 0), 600000000) AS settlement_us
    FROM queuebox.queue q
),
hour AS MATERIALIZED (
    SELECT p.relname::text AS parent, c.relname::text AS name, s.start, s.start + interval '1 hour' AS until,
        s.start + interval '2 hours' + CASE p.relname WHEN 'completed' THEN l.completed_us ELSE l.settlement_us END
            * interval '1 microsecond' AS drop_time,
        pg_has_role(c.relowner, 'USAGE') AS may_drop
    FROM pg_catalog.pg_class p
    JOIN pg_catalog.pg_inherits i ON i.inhparent = p.oid
    JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
    CROSS JOIN LATERAL (
        SELECT CASE WHEN c.relname ~ ('^' || p.relname || '_[0-9]{10}$')
            THEN to_timestamp(right(c.relname, 10) || '+00', 'YYYYMMDDHH24TZH') END AS start
    ) s
    CROSS JOIN longest l
    WHERE p.relname IN ('completed', 'settlement')
      AND p.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = 'queuebox')
      AND s.start IS NOT NULL
)
SELECT h.parent, h.name, h.start, h.until, NULL::integer AS queue_id
FROM hour h, clock
WHERE h.may_drop AND h.drop_time <= clock.now
UNION ALL
SELECT h.parent, h.name, h.start, h.until, q.queue_id
FROM clock, hour h, queuebox.queue q
WHERE h.until <= clock.now - CASE h.parent WHEN 'completed' THEN q.completed_retention_us
        ELSE greatest(q.completed_retention_us, 600000000) END * interval '1 microsecond'
  AND NOT (h.may_drop AND h.drop_time <= clock.now + $1::bigint * interval '1 microsecond')
  AND CASE h.parent
    WHEN 'completed' THEN EXISTS (SELECT 1 FROM queuebox.completed c
        WHERE c.queue_id = q.queue_id AND c.finish_time >= h.start AND c.finish_time < h.until)
    ELSE EXISTS (SELECT 1 FROM queuebox.settlement s
        WHERE s.queue_id = q.queue_id AND s.settle_time >= h.start AND s.settle_time < h.until) END
ORDER BY 3, 2, 5
