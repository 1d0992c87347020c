-- The number of a run.
SELECT number FROM runs WHERE id = ?
