-- The newest outcomes in journal order: a scan of all events, however many pages it is read in.
SELECT path, id, lane, data, coalesce(body, (SELECT body FROM blobs WHERE blobs.id = events.id))
FROM events NOT INDEXED
WHERE id >= :after + 1 AND id < :end
    AND kind = 'item-settled'
    AND (path = :prefix OR path >= :low AND path < :high)
    AND NOT EXISTS (
        SELECT 1
        FROM events AS newer INDEXED BY events_settled
        WHERE newer.run = :run AND newer.path = events.path AND newer.kind = 'item-settled' AND newer.id > events.id
    )
ORDER BY id
LIMIT :limit
