-- The newest run of a name.
SELECT id, name, kind, seed, created, tags, manifest,
    state, epoch, ended, beat, last_seq, driver, reason, spent, checked_from, tail, settled, fixed, sum
FROM abreast.runs
WHERE name = %(name)s
ORDER BY number DESC
LIMIT 1
