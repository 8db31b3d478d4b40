-- Makes messages the heads of their keys, ready at their own time or now, whichever is later
-- (O6). Leans on the primary key.
UPDATE message
SET place = CASE WHEN ready_time > CAST(round(unixepoch('subsec') * 1000) AS INTEGER) THEN 1 ELSE 0 END,
    ready_time = max(ready_time, CAST(round(unixepoch('subsec') * 1000) AS INTEGER))
WHERE position IN (SELECT value FROM json_each(?1))
