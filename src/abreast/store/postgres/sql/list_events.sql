-- Events in order.
SELECT id, kind, path, lane, mono, wall, data,
    coalesce(body, (SELECT body FROM abreast.blobs WHERE blobs.id = events.id)) AS body, epoch, sum
FROM abreast.events
WHERE id > %(after)s AND id < %(end)s
    AND (%(kinds)s::text[] IS NULL OR kind = ANY(%(kinds)s))
    AND (path = %(prefix)s OR path >= %(low)s AND path < %(high)s)
ORDER BY id
LIMIT %(limit)s
