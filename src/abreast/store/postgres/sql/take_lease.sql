-- Give the lease of a run to another driver.
UPDATE abreast.leases
SET holder = %(holder)s, process = %(process)s, until = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE run = %(run)s
