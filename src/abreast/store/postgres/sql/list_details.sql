-- What happened to the items beneath a prefix besides their ends, by the index, then sorted.
SELECT id, kind, path, lane, mono, wall, data,
    coalesce(body, (SELECT body FROM abreast.blobs WHERE blobs.id = events.id)) AS body, epoch, sum
FROM abreast.events
WHERE id = ANY(ARRAY(
    SELECT id
    FROM (
        SELECT id
        FROM abreast.events
        WHERE run = %(run)s AND kind IN ('attempt-failed', 'limit-waited', 'call-started')
            AND abreast.path_key(path) >= %(low_key)s AND abreast.path_key(path) < %(high_key)s
            AND (path = %(prefix)s OR path >= %(low)s AND path < %(high)s)
            AND kind = ANY(%(kinds)s::text[])
            AND id > %(after)s
        OFFSET 0 -- else the order by id may be taken from a scan of all events
    ) AS beneath
    ORDER BY id
    LIMIT %(limit)s
))
ORDER BY id
