-- Completes a claim in a transaction of somebody's own (E12). A null of a driver is a text, which
-- bytes are not made of by themselves.
DECLARE @message nvarchar(max) = @p1, @token nvarchar(max) = @p2, @bytes varbinary(max) = CONVERT(varbinary(max), @p3);
EXEC queuebox.own_mark 0 /* queue_id */, 1, 1048576 /* max_payload_bytes */, @message, @token, NULL, NULL, NULL, @bytes
