-- Delete a run's row.
DELETE FROM runs WHERE number = :run
