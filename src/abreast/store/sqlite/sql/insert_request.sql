-- Store a request for the run's driver.
INSERT INTO requests (run, kind, data, created, sum) VALUES (?, ?, ?, ?, ?)
RETURNING id
