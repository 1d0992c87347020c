-- The newest run of a name, as it is stored.
SELECT id, name, kind, seed, created, tags, manifest,
    state, epoch, ended, beat, last_seq, driver, reason, spent, checked_from, tail, settled, fixed, sum
FROM runs
WHERE name = ?
ORDER BY number DESC
LIMIT 1
