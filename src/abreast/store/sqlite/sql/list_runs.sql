-- Runs as they are stored, newest first; a parameter that is NULL does not restrict its column.
SELECT id, name, kind, seed, created, tags, manifest,
    state, epoch, ended, driver, reason, checked_from, fixed, beat, last_seq, spent, tail, settled, sum
FROM runs
WHERE (:name IS NULL OR name = :name)
    AND (:state IS NULL OR state = :state)
    AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(tags) WHERE value = :tag))
ORDER BY number DESC
LIMIT :limit
