-- Delete a run's long bodies.
DELETE FROM abreast.blobs WHERE id > %(start)s AND id < %(end)s
