-- Which of the listed claims are not plainly held: their row is gone or another's, or their holder
-- was asked to stop. ?1 lists the positions, ?2 holds their tokens one after the other. No row for
-- the others. Leans on the primary key.
SELECT j.key, m.cancel_requested
FROM json_each(?1) AS j
LEFT JOIN message AS m ON m.position = j.value AND m.state = 1 AND m.token = substr(?2, 1 + 16 * j.key, 16)
WHERE m.position IS NULL OR m.cancel_requested
