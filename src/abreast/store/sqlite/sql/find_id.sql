-- The id of a run.
SELECT id FROM runs WHERE number = ?
