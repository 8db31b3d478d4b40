-- Tells the version of the schema, null where there is none that this role can see (D7).
-- A handful of rows; no index.
SELECT max(version_id) FROM queuebox.goose_db_version WHERE is_applied
