-- Delete the requests to a run's driver.
DELETE FROM requests WHERE run = :run
