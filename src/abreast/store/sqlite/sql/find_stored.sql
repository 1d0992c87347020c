-- One event as it is stored.
SELECT id - :base, kind, path, lane, mono, wall, data,
    coalesce(body, (SELECT body FROM blobs WHERE blobs.id = events.id)), epoch, sum
FROM events NOT INDEXED
WHERE id = :id
