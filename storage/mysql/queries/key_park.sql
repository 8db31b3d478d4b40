-- Takes heads back behind others of their keys. It comes before key_promote, since a key has
-- one head at a time. The caller has the locks of the rows. Leans on the primary key.
UPDATE JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
SET m.place = 2
