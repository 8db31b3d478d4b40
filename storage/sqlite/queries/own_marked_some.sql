-- Whether there is anything to finish, asked without the write lock.
SELECT EXISTS (SELECT 1 FROM marked)
