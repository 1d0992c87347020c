-- The newest outcomes of a few paths of a long journal: by the index, then sorted.
SELECT path, id, lane, data, coalesce(body, (SELECT body FROM blobs WHERE blobs.id = events.id))
FROM events
WHERE id IN (
    SELECT newest
    FROM (
        SELECT max(id) AS newest
        FROM events INDEXED BY events_settled
        WHERE run = :run AND kind = 'item-settled' AND path >= :floor AND path < :high
            AND (path = :prefix OR path >= :low)
        GROUP BY path
    )
    WHERE newest > :after
    ORDER BY newest
    LIMIT :limit
)
ORDER BY id
