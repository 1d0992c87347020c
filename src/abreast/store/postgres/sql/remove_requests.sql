-- Delete the requests to a run's driver.
DELETE FROM abreast.requests WHERE run = %(run)s
