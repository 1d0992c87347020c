-- Delete replies cached before a time; of one model, or of all.
DELETE FROM replies WHERE kept < :before AND (:model IS NULL OR model = :model)
