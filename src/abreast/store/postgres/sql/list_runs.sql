-- Runs, newest first; a parameter that is NULL does not restrict its column.
SELECT id, name, kind, seed, created, tags, manifest,
    state, epoch, ended, driver, reason, checked_from, fixed, beat, last_seq, spent, tail, settled, sum
FROM abreast.runs
WHERE (%(name)s::text IS NULL OR name = %(name)s)
    AND (%(state)s::text IS NULL OR state = %(state)s)
    AND (%(tag)s::text IS NULL OR strpos(tags, '[' || %(tag)s) > 0 OR strpos(tags, ',' || %(tag)s) > 0)
ORDER BY number DESC
LIMIT %(limit)s
