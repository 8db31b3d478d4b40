-- The next ordering keys in the order of their ids. It waits for nobody: what is found is
-- looked at again under the lock of the key. Walks the primary key.
SELECT TOP (@limit) k.key_id, k.queue_id
FROM queuebox.ordering_key AS k WITH (NOLOCK)
WHERE k.key_id > @after
ORDER BY k.key_id
