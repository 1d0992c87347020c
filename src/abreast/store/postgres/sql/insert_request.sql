-- Store a request for the run's driver; one that is sent again is found by its token.
INSERT INTO abreast.requests (run, kind, data, created, sum, token)
VALUES (%(run)s, %(kind)s, %(data)s, %(at)s, %(sum)s, %(token)s)
ON CONFLICT (token) DO UPDATE SET token = excluded.token
RETURNING id
