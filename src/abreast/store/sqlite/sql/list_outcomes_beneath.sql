-- The newest outcomes of a few paths of a long journal: by the index, then sorted. A path is NULL if its event is not found.
SELECT path, newest, lane, data, coalesce(body, (SELECT body FROM blobs WHERE blobs.id = events.id))
FROM (
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
LEFT JOIN events ON events.id = newest
ORDER BY newest
