-- Delete a run's lease.
DELETE FROM abreast.leases WHERE run = %(run)s
