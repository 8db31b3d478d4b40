-- The clock of the database. sysdate is read anew wherever it stands; now() would be the
-- start of the statement, before it waited for a lock.
SELECT {{now}}
