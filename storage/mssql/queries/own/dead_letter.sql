-- Dead-letters a claim in a transaction of somebody's own (E12).
EXEC queuebox.own_mark 0 /* queue_id */, 3, 1048576 /* max_payload_bytes */, @p1, @p2, NULL, @p3, @p4, NULL
