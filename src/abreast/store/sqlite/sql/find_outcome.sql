-- The newest outcome of one path.
SELECT path, id, lane, data, coalesce(body, (SELECT body FROM blobs WHERE blobs.id = events.id))
FROM events INDEXED BY events_settled
WHERE run = ? AND path = ? AND kind = 'item-settled'
ORDER BY id DESC
LIMIT 1
