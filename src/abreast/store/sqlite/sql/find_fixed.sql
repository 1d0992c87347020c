-- The columns of a run that never change.
SELECT id, name, kind, seed, created, tags, manifest
FROM runs
WHERE number = ?
