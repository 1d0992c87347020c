-- The newest run of a name.
SELECT id, name, kind, state, seed, epoch, created, ended, last_seq, driver, reason, tags, spent, manifest
FROM abreast.runs
WHERE name = %(name)s
ORDER BY number DESC
LIMIT 1
