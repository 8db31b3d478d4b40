-- Enqueues in a transaction of somebody's own (E12).
DECLARE @bytes varbinary(max) = CONVERT(varbinary(max), @p1);
EXEC queuebox.own_enqueue 0 /* queue_id */, 3277 /* queue_name */, 1048576 /* max_payload_bytes */, @bytes, @p2, @p3, @p4, @p5, @p6, @p7, @p8, @p9, @p10
