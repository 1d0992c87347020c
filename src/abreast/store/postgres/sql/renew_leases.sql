-- Renew the leases that are still this driver's, also if they have expired; returns their tokens.
UPDATE abreast.leases
SET until = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE holder = ANY(%(holders)s::text[])
RETURNING holder
