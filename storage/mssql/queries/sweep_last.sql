-- The live message that stands @rows messages after the first one after an id; no row where there
-- are not so many. It only bounds a look, so it waits for nobody. Walks message_id.
SELECT m.queue_id, m.id
FROM queuebox.message AS m WITH (NOLOCK, INDEX (message_id))
WHERE m.id > @after
ORDER BY m.id
OFFSET @rows ROWS FETCH NEXT 1 ROWS ONLY;
