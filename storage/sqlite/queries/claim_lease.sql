-- Leases messages that claim_scan has found in the same transaction, under the write lock: those
-- at the positions ?1 to ?6, all of which it has found. ?2 holds their tokens one after the other;
-- token, lease end, claim time, worker and attempt in one statement. ?3 is the storage clock
-- as that transaction has read it. Leans on the primary key and writes no indexed column.
UPDATE message
SET state = 1, token = substr(?2, 1 + 16 * (position - ?1), 16), lease_end = ?3 + ?4, lease = ?4, claim_time = ?3, worker_id = ?5, attempt = attempt + 1
WHERE position BETWEEN ?1 AND ?6
