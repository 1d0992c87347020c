-- Events in order.
SELECT id, kind, path, mono, wall, lane, data, coalesce(body, (SELECT body FROM blobs WHERE blobs.id = events.id))
FROM events NOT INDEXED
WHERE id >= :after + 1 AND id < :end
    AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))
    AND (path = :prefix OR path >= :low AND path < :high)
ORDER BY id
LIMIT :limit
