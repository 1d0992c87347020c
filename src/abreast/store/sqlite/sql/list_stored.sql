-- Events as they are stored, in order.
SELECT id - :base, kind, path, lane, mono, wall, data,
    coalesce(body, (SELECT body FROM blobs WHERE blobs.id = events.id)), epoch, sum
FROM events NOT INDEXED
WHERE id >= :after + 1 AND id < :end
ORDER BY id
LIMIT :limit
