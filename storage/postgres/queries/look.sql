-- Which of these claims are not plainly held: their row is gone or another's, or their holder was
-- asked to stop. No row for the others. Leans on message_pkey.
SELECT u.ord, m.cancel_requested
FROM unnest($1::integer[], $2::bigint[], $3::uuid[]) WITH ORDINALITY AS u (queue_id, position, token, ord)
LEFT JOIN queuebox.message m ON m.queue_id = u.queue_id AND m.position = u.position
    AND CASE WHEN m.token = u.token THEN m.state = 1 ELSE false END
WHERE m.position IS NULL OR m.cancel_requested
