-- The calls that were settled beneath a prefix, by the index.
SELECT id, kind, path, mono, wall, lane, data, coalesce(body, (SELECT body FROM blobs WHERE blobs.id = events.id))
FROM events INDEXED BY events_calls
WHERE run = :run AND kind = 'call-settled' AND path >= :floor AND path < :high
    AND (path = :prefix OR path >= :low)
    AND id > :after
ORDER BY id
LIMIT :limit
