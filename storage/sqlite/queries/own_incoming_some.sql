-- Whether there is anything to place, asked without the write lock.
SELECT EXISTS (SELECT 1 FROM incoming WHERE refused IS NULL)
