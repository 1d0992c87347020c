-- One run by its id.
SELECT id, name, kind, seed, created, tags, manifest,
    state, epoch, ended, driver, reason, checked_from, fixed, beat, last_seq, spent, tail, settled, sum
FROM abreast.runs
WHERE id = %(id)s
