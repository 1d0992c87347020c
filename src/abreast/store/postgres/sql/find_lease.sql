-- Whether the lease of a run has not expired, and the process of its driver.
SELECT coalesce(until > clock_timestamp(), false), process
FROM abreast.leases
WHERE run = %(run)s
