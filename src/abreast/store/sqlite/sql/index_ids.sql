-- The runs, as the index of their ids has them.
SELECT number, id FROM runs INDEXED BY sqlite_autoindex_runs_1 WHERE id >= ''
