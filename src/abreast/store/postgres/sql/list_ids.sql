-- The newest ids, to suggest one for an unknown id.
SELECT id FROM abreast.runs ORDER BY number DESC LIMIT 1000
