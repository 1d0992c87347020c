-- Runs in some states that ended, or wrote their last event, before a time; oldest first.
SELECT id
FROM abreast.runs
WHERE state = ANY(%(states)s::text[]) AND coalesce(ended, beat) < %(before)s
ORDER BY number
