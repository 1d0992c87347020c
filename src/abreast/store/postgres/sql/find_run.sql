-- One run by its id.
SELECT id, name, kind, seed, created, tags, manifest,
    state, epoch, ended, beat, last_seq, driver, reason, spent, checked_from, tail, settled, fixed, sum
FROM abreast.runs
WHERE id = %(id)s
