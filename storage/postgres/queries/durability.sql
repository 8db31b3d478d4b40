-- Tells what Open wants to know of the database: its version, encoding, role in
-- replication, and the settings that D9 names, as this session sees them.
SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
    current_setting('server_encoding'), current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), to_regclass('queuebox.goose_db_version') IS NOT NULL
