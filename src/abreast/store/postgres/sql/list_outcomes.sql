-- The newest outcomes in journal order: a scan of all events, however many pages it is read in.
SELECT id, kind, path, lane, mono, wall, data,
    coalesce(body, (SELECT body FROM abreast.blobs WHERE blobs.id = events.id)) AS body, epoch, sum
FROM abreast.events
WHERE id > %(after)s AND id < %(end)s
    AND kind = 'item-settled'
    AND (path = %(prefix)s OR path >= %(low)s AND path < %(high)s)
    AND id = (
        SELECT max(newer.id)
        FROM abreast.events AS newer
        WHERE newer.run = %(run)s AND abreast.path_key(newer.path) = abreast.path_key(events.path)
            AND newer.kind = 'item-settled'
    )
ORDER BY id
LIMIT %(limit)s
