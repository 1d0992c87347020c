-- The items that were read, in order, by the index and without a scan of all events.
SELECT id, kind, path, lane, mono, wall, data,
    coalesce(body, (SELECT body FROM abreast.blobs WHERE blobs.id = events.id)) AS body, epoch, sum
FROM abreast.events
WHERE run = %(run)s AND kind IN ('item-read', 'items-complete')
    AND id > %(after)s
    AND kind = ANY(%(kinds)s::text[])
    AND (path = %(prefix)s OR path >= %(low)s AND path < %(high)s)
ORDER BY id
LIMIT %(limit)s
