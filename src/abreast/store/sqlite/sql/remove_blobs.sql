-- Delete a run's long bodies.
DELETE FROM blobs WHERE id > :start AND id < :end
