-- Give the lease of a new run to its driver.
INSERT INTO abreast.leases (run, holder, process, until)
VALUES (%(run)s, %(holder)s, %(process)s, clock_timestamp() + make_interval(secs => %(seconds)s))
