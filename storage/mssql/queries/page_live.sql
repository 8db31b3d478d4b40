-- Where the next page of ids begins that a list looks at: the id that stands @rows rows of the
-- table below @last; no row where there are not so many. It reads ids alone, and waits for
-- nobody. Leans on the primary key.
SELECT m.id
FROM queuebox.message AS m WITH (NOLOCK, INDEX (message_id))
WHERE m.id <= @last
ORDER BY m.id DESC
OFFSET @rows ROWS FETCH NEXT 1 ROWS ONLY;
