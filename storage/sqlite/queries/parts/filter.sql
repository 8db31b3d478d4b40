-- Which messages are meant, as far as it is said of every kind in the same way: what
-- ListMessagesParams says of a row m, in the parameters ?5 to ?9. The lists, Redrive and Purge
-- share this text, so that they mean the same.
  (json_array_length(?5) = 0 OR m.reason_code IN (SELECT value FROM json_each(?5)))
  AND (?6 = '' OR instr(m.last_error, ?6) > 0)
  AND (?7 = '' OR m.worker_id = ?7)
  AND (?8 IS NULL OR m.create_time >= ?8)
  AND (?9 IS NULL OR m.create_time < ?9)
