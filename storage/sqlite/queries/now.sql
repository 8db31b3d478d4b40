-- The storage clock in milliseconds since the epoch.
SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
