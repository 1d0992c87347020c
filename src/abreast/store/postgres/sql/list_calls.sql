-- The calls that were settled beneath a prefix, by the index.
SELECT id, kind, path, lane, mono, wall, data,
    coalesce(body, (SELECT body FROM abreast.blobs WHERE blobs.id = events.id)) AS body, epoch, sum
FROM abreast.events
WHERE run = %(run)s AND kind = 'call-settled'
    AND abreast.path_key(path) >= %(low_key)s AND abreast.path_key(path) < %(high_key)s
    AND (path = %(prefix)s OR path >= %(low)s AND path < %(high)s)
    AND id > %(after)s
ORDER BY id
LIMIT %(limit)s
