-- What claim.sql does more in a queue with a limit (L1, L2), under the lock of claim_limit:
-- it stands there before the last SELECT. It appends a slot for each message taken where
-- leases are counted ($18) and for those that were moved ($19), removes what limit_state.sql
-- found ($21), and appends the state after the claim: the bucket ($16 when it was full, $17
-- its rate) and the oldest slot that counts ($20). Nothing of it where nothing was taken.
, slots AS (
    INSERT INTO queuebox.claim_slot (queue_id, position)
    SELECT $1, p.position
    FROM (SELECT l.position FROM leased l UNION ALL SELECT unnest($19::bigint[])) p
    WHERE $18::boolean AND EXISTS (SELECT 1 FROM leased)
    RETURNING seq
),
gone AS (
    DELETE FROM queuebox.claim_slot s
    WHERE s.queue_id = $1 AND s.seq = ANY ($21::bigint[]) AND (SELECT count(*) FROM leased) > 0
),
pace AS (
    INSERT INTO queuebox.claim_pace (queue_id, rate, full_ns, slot_from)
    SELECT $1, $17::double precision,
        CASE WHEN $17::double precision > 0
            THEN greatest($16::bigint, (extract(epoch FROM t.last) * 1000000)::bigint * 1000)
                + ceil(t.n * 1000000000::double precision / $17::double precision)::bigint
            ELSE $16::bigint END,
        coalesce($20::bigint, (SELECT min(s.seq) FROM slots s), 0)
    FROM (SELECT count(*) AS n, max(l.claim_time) AS last FROM leased l) t
    WHERE t.n > 0
)
