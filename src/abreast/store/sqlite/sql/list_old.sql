-- Runs in some states of which nothing was heard since a time, oldest first.
SELECT id
FROM runs
WHERE state IN (SELECT value FROM json_each(:states)) AND coalesce(ended, beat) < :before
ORDER BY number
