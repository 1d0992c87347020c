-- The runs, as the index of their names has them.
SELECT number, name FROM runs INDEXED BY runs_by_name WHERE name >= ''
