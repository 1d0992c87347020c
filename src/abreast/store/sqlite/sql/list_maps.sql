-- The maps that were started beneath a prefix, by the index.
SELECT id, kind, path, mono, wall, lane, data, coalesce(body, (SELECT body FROM blobs WHERE blobs.id = events.id))
FROM events INDEXED BY events_maps
WHERE run = :run AND kind = 'map-started' AND path >= :floor AND path < :high
    AND (path = :prefix OR path >= :low)
    AND id > :after
ORDER BY id
LIMIT :limit
