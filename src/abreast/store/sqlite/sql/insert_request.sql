-- Store a request for the run's driver.
INSERT INTO requests (run, kind, data, created) VALUES (?, ?, ?, ?)
RETURNING id
