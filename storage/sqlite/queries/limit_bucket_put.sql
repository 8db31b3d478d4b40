-- The bucket after a claim (L2). One row is updated, which costs SQLite the same however
-- often and whoever reads: it keeps no old versions of a row in the table.
INSERT INTO claim_pace (queue_id, rate, full_ns) VALUES (?1, ?2, ?3)
ON CONFLICT (queue_id) DO UPDATE SET rate = excluded.rate, full_ns = excluded.full_ns
