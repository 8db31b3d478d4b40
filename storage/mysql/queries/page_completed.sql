-- Where the next page of ids begins that a list looks at: the id that stands :rows rows of the
-- table below :last; no row where there are not so many. Leans on the primary key.
SELECT m.id
FROM completed AS m FORCE INDEX (PRIMARY)
WHERE m.id <= :last
ORDER BY m.id DESC
LIMIT 1 OFFSET :rows
