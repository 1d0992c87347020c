-- Make the lease of a run that is not driven.
INSERT INTO abreast.leases (run) VALUES (%(run)s)
