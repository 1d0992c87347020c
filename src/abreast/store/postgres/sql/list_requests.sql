-- Requests not yet carried out, oldest first.
SELECT id, kind, data, created, sum
FROM abreast.requests
WHERE run = %(run)s AND answered IS NULL
ORDER BY id
