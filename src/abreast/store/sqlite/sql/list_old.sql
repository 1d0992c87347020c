-- Runs in some states that ended, or wrote their last event, before a time; oldest first.
SELECT id
FROM runs
WHERE state IN (SELECT value FROM json_each(:states)) AND coalesce(ended, beat) < :before
ORDER BY number
