-- Delete a run's events.
DELETE FROM abreast.events WHERE id > %(start)s AND id < %(end)s
