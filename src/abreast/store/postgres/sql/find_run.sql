-- One run by its id.
SELECT id, name, kind, state, seed, epoch, created, ended, last_seq, driver, reason, tags, spent, manifest
FROM abreast.runs
WHERE id = %(id)s
