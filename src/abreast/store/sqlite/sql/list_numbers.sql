-- The runs, without an index.
SELECT number, id, name FROM runs NOT INDEXED
