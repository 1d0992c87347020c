-- Delete a run's events.
DELETE FROM events WHERE id > :start AND id < :end
