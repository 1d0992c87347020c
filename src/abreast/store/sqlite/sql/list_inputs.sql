-- The items that were read, in order, by the index and without a scan of all events.
SELECT id, kind, path, mono, wall, lane, data, coalesce(body, (SELECT body FROM blobs WHERE blobs.id = events.id))
FROM events INDEXED BY events_read
WHERE run = :run AND kind IN ('item-read', 'items-complete')
    AND id > :after
    AND kind IN (SELECT value FROM json_each(:kinds))
    AND (path = :prefix OR path >= :low AND path < :high)
ORDER BY id
LIMIT :limit
