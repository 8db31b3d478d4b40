-- The one narrow row of a call with a claim id (C14).
INSERT INTO claim_call (queue_id, claim_id, worker_id, claim_time, held)
VALUES (?1, ?2, ?3, CAST(round(unixepoch('subsec') * 1000) AS INTEGER), ?4)
