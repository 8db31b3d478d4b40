-- Makes sure that ordering keys are there and stay: it makes those that have no row, and locks the
-- others, each name once and in the order in which keys are locked (D12). It is for a transaction
-- that runs again, since a key went away, or another transaction made it, between two of its
-- statements: dearer than take_names.sql, which follows it, for a row that is there is updated.
-- add_names.sql comes before it and makes what is missing while nothing is locked; so it makes only
-- what went away since.
-- Leans on ordering_key_name_key.
INSERT INTO queuebox.ordering_key (queue_id, name)
SELECT u.queue_id, u.name
FROM (SELECT unnest($1::integer[]) AS queue_id, unnest($2::text[]) AS name, generate_subscripts($2::text[], 1) AS ord) u
ORDER BY u.ord
ON CONFLICT (queue_id, name) DO UPDATE SET queue_id = excluded.queue_id
