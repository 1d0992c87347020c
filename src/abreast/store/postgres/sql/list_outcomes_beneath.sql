-- The newest outcomes of a few paths of a long journal: by the index, then sorted.
SELECT id, kind, path, lane, mono, wall, data,
    coalesce(body, (SELECT body FROM abreast.blobs WHERE blobs.id = events.id)) AS body, epoch, sum
FROM abreast.events
WHERE id = ANY(ARRAY(
    SELECT newest
    FROM (
        SELECT max(id) AS newest
        FROM abreast.events
        WHERE run = %(run)s AND kind = 'item-settled'
            AND abreast.path_key(path) >= %(low_key)s AND abreast.path_key(path) < %(high_key)s
            AND (path = %(prefix)s OR path >= %(low)s AND path < %(high)s)
        GROUP BY path
    ) AS beneath
    WHERE newest > %(after)s
    ORDER BY newest
    LIMIT %(limit)s
))
ORDER BY id
