-- Give a lease back.
UPDATE abreast.leases SET holder = NULL, process = NULL, until = NULL WHERE holder = %(holder)s
