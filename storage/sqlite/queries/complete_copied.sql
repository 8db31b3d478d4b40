-- Which of the listed messages complete_copy has copied: those that are live and completed at
-- once, which only the same transaction can see. Leans on the primary keys.
SELECT m.position
FROM json_each(?1) AS j
CROSS JOIN message AS m
CROSS JOIN completed AS c
WHERE m.position = j.value AND c.position = m.position
