-- Counts a message that is leased just now.
INSERT OR IGNORE INTO claim_slot (queue_id, position) VALUES (?1, ?2)
