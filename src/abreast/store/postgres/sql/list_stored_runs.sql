-- All runs as they are stored, oldest first.
SELECT id, name, kind, seed, created, tags, manifest,
    state, epoch, ended, driver, reason, checked_from, fixed, beat, last_seq, spent, tail, settled, sum
FROM abreast.runs
ORDER BY number
