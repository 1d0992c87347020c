-- Requests not yet carried out, oldest first.
SELECT id, kind, data, created, sum
FROM requests INDEXED BY requests_open
WHERE run = ? AND answered IS NULL
ORDER BY id
