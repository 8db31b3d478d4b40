-- Which messages m are meant, as far as it is said of every kind in the same way: what
-- filterArgs of rowlock gives. Lists, Redrive and Purge share this text, so that they mean the
-- same. Texts are compared as bytes, since the equals sign passes over blanks at the end;
-- CHARINDEX compares as the column does, by bytes too.
(@reason_codes IS NULL OR EXISTS (
        SELECT 1 FROM OPENJSON(@reason_codes) WITH (code nvarchar(255) '$[0]') AS j
        WHERE CAST(j.code AS varbinary(510)) = CAST(m.reason_code AS varbinary(510))))
    AND (@error_contains IS NULL OR CHARINDEX(@error_contains, m.last_error) > 0)
    AND (@worker_id IS NULL OR CAST(m.worker_id AS varbinary(510)) = CAST(@worker_id AS varbinary(510)))
    AND (@min_create_time IS NULL OR m.create_time >= @min_create_time)
    AND (@max_create_time IS NULL OR m.create_time < @max_create_time)
