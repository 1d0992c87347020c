-- A page of the events of a run as they are stored, in order.
SELECT id - %(base)s, kind, path, lane, mono, wall, data,
    coalesce(body, (SELECT body FROM abreast.blobs WHERE blobs.id = events.id)), epoch, sum
FROM abreast.events
WHERE id > %(after)s AND id < %(end)s
ORDER BY id
LIMIT %(limit)s
