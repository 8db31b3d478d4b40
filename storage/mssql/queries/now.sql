-- The clock of the database, UTC, as it is stored and compared everywhere.
SELECT {{now}} AS now
