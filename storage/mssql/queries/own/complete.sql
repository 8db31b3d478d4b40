-- Completes a claim in a transaction of somebody's own (E12).
EXEC queuebox.own_mark 0 /* queue_id */, 1, 1048576 /* max_payload_bytes */, @p1, @p2, NULL, NULL, NULL, @p3
