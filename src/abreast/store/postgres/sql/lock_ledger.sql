-- The ledger of a shared lane and the time, for one driver at a time.
SELECT body, sum, extract(epoch FROM clock_timestamp())::double precision
FROM abreast.ledgers
WHERE name = %(name)s
FOR UPDATE
