-- The run whose lease has this token.
SELECT number, id FROM abreast.runs JOIN abreast.leases ON leases.run = runs.number WHERE holder = %(holder)s
