-- Which messages m are meant, as far as it is said of every kind in the same way: what
-- filterArgs of rowlock gives. Lists, Redrive and Purge share this text, so that they mean the
-- same. The columns compare by bytes, and so does CHARINDEX; the equals sign passes over blanks
-- at the end, so the lengths are compared too.
    (@reason_codes IS NULL OR EXISTS (
        SELECT 1 FROM OPENJSON(@reason_codes) WITH (code nvarchar(255) '$[0]') AS j
        WHERE j.code COLLATE Latin1_General_100_BIN2 = m.reason_code AND DATALENGTH(j.code) = DATALENGTH(m.reason_code)))
    AND (@error_contains IS NULL OR CHARINDEX(@error_contains, m.last_error) > 0)
    AND (@worker_id IS NULL OR (m.worker_id = @worker_id AND DATALENGTH(m.worker_id) = DATALENGTH(@worker_id)))
    AND (@min_create_time IS NULL OR m.create_time >= @min_create_time)
    AND (@max_create_time IS NULL OR m.create_time < @max_create_time)
