-- One run by its id, as it is stored.
SELECT id, name, kind, seed, created, tags, manifest,
    state, epoch, ended, beat, last_seq, driver, reason, spent, checked_from, tail, settled, fixed, sum
FROM runs
WHERE id = ?
