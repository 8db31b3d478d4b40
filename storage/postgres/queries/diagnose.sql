-- Tells what is known of claims that a settlement or renewal did not find: the live row, what
-- the token was settled as, what has become of the message since. Changes nothing; one
-- snapshot for all items. Leans on the position indexes of the message tables.
SELECT clock_timestamp(), u.ord,
    live.state, live.mine, live.attempt, live.outcome, live.mark_action, live.mark_dead_reason, live.settle_time,
    live.available_time,
    own.action, own.outcome, own.dead_reason, own.settle_time, own.available_time,
    own.others,
    done.mine, done.finish_time, done.follow_ups,
    gone.mine, gone.state, gone.action, gone.dead_reason, gone.finish_time
FROM unnest($1::integer[], $2::bigint[], $3::uuid[]) WITH ORDINALITY AS u (queue_id, position, token, ord)
LEFT JOIN LATERAL (
    SELECT q.completed_retention_us * interval '1 microsecond' AS completed_retention,
        q.dead_retention_us * interval '1 microsecond' AS dead_retention
    FROM queuebox.queue q WHERE q.queue_id = u.queue_id
) q ON true
LEFT JOIN LATERAL (
    SELECT m.state, m.token IS NOT DISTINCT FROM u.token AS mine,
        m.attempt, m.outcome, m.mark_action, m.mark_dead_reason, m.settle_time,
        m.settle_time + m.mark_delay_us * interval '1 microsecond' AS available_time
    FROM queuebox.message m
    WHERE m.queue_id = u.queue_id AND m.position = u.position
) live ON true
LEFT JOIN LATERAL (
    SELECT min(s.action) FILTER (WHERE s.token = u.token) AS action,
        min(s.outcome) FILTER (WHERE s.token = u.token) AS outcome,
        min(s.dead_reason) FILTER (WHERE s.token = u.token) AS dead_reason,
        min(s.settle_time) FILTER (WHERE s.token = u.token) AS settle_time,
        min(s.available_time) FILTER (WHERE s.token = u.token) AS available_time,
        count(*) FILTER (WHERE s.token <> u.token) AS others
    FROM queuebox.settlement s
    WHERE s.queue_id = u.queue_id AND s.position = u.position
      AND s.settle_time + greatest(q.completed_retention, interval '10 minutes') > clock_timestamp()
) own ON true
LEFT JOIN LATERAL (
    SELECT c.token = u.token AS mine, c.finish_time, c.follow_ups
    FROM queuebox.completed c
    WHERE c.queue_id = u.queue_id AND c.position = u.position
      AND c.finish_time + q.completed_retention > clock_timestamp()
    LIMIT 1
) done ON true
LEFT JOIN LATERAL (
    SELECT coalesce(d.token = u.token, false) AS mine, d.state, d.action, d.dead_reason, d.finish_time
    FROM queuebox.dead d
    WHERE d.queue_id = u.queue_id AND d.position = u.position
      AND CASE WHEN d.state = 5 THEN d.finish_time + q.completed_retention > clock_timestamp()
          ELSE q.dead_retention = interval '0' OR d.finish_time + q.dead_retention > clock_timestamp() END
) gone ON true
