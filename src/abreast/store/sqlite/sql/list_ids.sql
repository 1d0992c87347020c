-- The newest ids, to suggest one for an id that isn't there.
SELECT id FROM runs ORDER BY number DESC LIMIT 1000
