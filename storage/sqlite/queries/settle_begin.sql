-- The storage clock, and whether there is any ordering key at all: where there is none, nobody
-- has to ask which of the settled messages have one. Leans on the primary key, one seek.
SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER), EXISTS (SELECT 1 FROM ordering_key WHERE id > 0)
