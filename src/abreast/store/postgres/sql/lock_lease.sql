-- The lease of a run, which no other driver can take before the transaction ends.
SELECT run, holder, process, coalesce(until > clock_timestamp(), false)
FROM abreast.leases
WHERE run = %(run)s
FOR UPDATE
