-- The version of the schema (D7). Leans on nothing: the table has a row for each migration.
SELECT COALESCE(MAX(v.version_id), 0) AS version
FROM queuebox.goose_db_version AS v
WHERE v.is_applied = 1
