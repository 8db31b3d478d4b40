-- Which messages m are meant, as far as it is said of every kind in the same way: what
-- filterArgs of rowlock gives. Lists, Redrive and Purge share this text, so that they mean the
-- same. The columns compare by bytes, and so does INSTR.
(:reason_codes IS NULL OR m.reason_code IN (
        SELECT j.code FROM JSON_TABLE(:reason_codes, '$[*]' COLUMNS (code VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[0]')) AS j))
    AND (:error_contains IS NULL OR INSTR(m.last_error, :error_contains) > 0)
    AND (:worker_id IS NULL OR m.worker_id = :worker_id)
    AND (:min_create_time IS NULL OR m.create_time >= :min_create_time)
    AND (:max_create_time IS NULL OR m.create_time < :max_create_time)
