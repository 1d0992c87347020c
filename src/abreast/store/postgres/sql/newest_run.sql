-- The newest run of a name.
SELECT id, name, kind, seed, created, tags, manifest,
    state, epoch, ended, driver, reason, checked_from, fixed, beat, last_seq, spent, tail, settled, sum
FROM abreast.runs
WHERE name = %(name)s
ORDER BY number DESC
LIMIT 1
