-- Outside of a transaction, and where the database keeps versions of rows
-- (ALLOW_SNAPSHOT_ISOLATION), the batch reads what is committed and waits for nobody, with
-- READ_COMMITTED_SNAPSHOT or without. In a transaction it sees what that has written. The batch
-- takes the level back at its end.
IF @@TRANCOUNT = 0 AND EXISTS (SELECT 1 FROM sys.databases AS b WHERE b.name = DB_NAME() AND b.snapshot_isolation_state = 1)
    SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
