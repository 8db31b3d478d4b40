-- Tells which of the tables that change with every message have enough dead rows for a VACUUM,
-- and may be vacuumed by this role: its owner, or one with MAINTAIN where the database knows it.
-- horizon is the oldest transaction that any session still sees: what died after it stays, and
-- while it has not moved since the last VACUUM another one would remove nothing. Sessions of other
-- roles show it only to members of pg_read_all_stats; what is not seen does not count. sees says
-- whether this role is one, and prompt whether what a VACUUM has left is known as soon as it ended.
-- held is for how many seconds whoever holds the horizon has had a transaction open: 0 where nobody
-- does, and -1 where that is not known, as of a replication slot.
-- A transaction is told by 32 bits; the other half of horizon is that of the newest one, which is less
-- than 2^31 away. Their difference by age() would not do: that is read a moment later.
WITH oldest AS MATERIALIZED (
    SELECT h.xmin::text::bigint AS xmin, h.since FROM (
        SELECT a.backend_xmin AS xmin, a.xact_start AS since FROM pg_stat_activity a
            WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() AND a.backend_type <> 'autovacuum worker'
              AND (a.datname = current_database() OR a.datname IS NULL)
        UNION ALL
        SELECT r.xmin, NULL FROM pg_replication_slots r WHERE r.xmin IS NOT NULL
        UNION ALL
        SELECT p.transaction, p.prepared FROM pg_prepared_xacts p
    ) h
    ORDER BY age(h.xmin) DESC, h.since LIMIT 1
),
newest AS MATERIALIZED (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xid)
SELECT c.relname::text, coalesce(s.n_dead_tup, 0), coalesce(s.n_live_tup, 0),
    w.xid - coalesce((SELECT ((w.xid - o.xmin + 2147483648) & 4294967295) - 2147483648 FROM oldest o), 0) AS horizon,
    coalesce((SELECT CASE WHEN since IS NULL THEN -1 ELSE greatest(extract(epoch FROM now() - since), 0)::float8 END FROM oldest), 0) AS held,
    pg_has_role('pg_read_all_stats', 'USAGE') AS sees,
    current_setting('server_version_num')::integer >= 150000 AS prompt
FROM newest w CROSS JOIN pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
WHERE n.nspname = 'queuebox' AND c.relname = ANY ($1::text[])
  AND (pg_has_role(c.relowner, 'USAGE')
      OR CASE WHEN current_setting('server_version_num')::integer >= 170000
          THEN has_table_privilege(c.oid, 'MAINTAIN') ELSE false END)
