-- Delete a run's big bodies.
DELETE FROM blobs WHERE id > :start AND id < :end
