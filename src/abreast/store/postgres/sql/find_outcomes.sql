-- The newest outcomes of some paths.
SELECT newest.*
FROM unnest(%(paths)s::bytea[]) AS wanted (path) CROSS JOIN LATERAL (
    SELECT id, kind, events.path, lane, mono, wall, data,
        coalesce(body, (SELECT body FROM abreast.blobs WHERE blobs.id = events.id)) AS body, epoch, sum
    FROM abreast.events
    WHERE run = %(run)s AND kind = 'item-settled'
        AND abreast.path_key(events.path) = abreast.path_key(wanted.path) AND events.path = wanted.path
    ORDER BY id DESC
    LIMIT 1
) AS newest
