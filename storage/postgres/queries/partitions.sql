-- Lists the hours from now on, up to $1 ahead, for which $2 has no partition, and the name
-- that each would have. Hours are those of UTC. A look at the catalog.
SELECT h.start, h.start + interval '1 hour',
    $2::text || to_char(h.start AT TIME ZONE 'UTC', '"_"YYYYMMDDHH24')
FROM (
    SELECT date_trunc('hour', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' + n * interval '1 hour' AS start
    FROM generate_series(0, $1::integer) n
) h
WHERE to_regclass('queuebox.' || $2::text || to_char(h.start AT TIME ZONE 'UTC', '"_"YYYYMMDDHH24')) IS NULL
ORDER BY h.start
