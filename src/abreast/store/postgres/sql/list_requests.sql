-- Requests not yet carried out, oldest first.
SELECT id, kind, data, created
FROM abreast.requests
WHERE run = %(run)s AND answered IS NULL
ORDER BY id
