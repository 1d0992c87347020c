-- The ledgers of all shared lanes.
SELECT name, body FROM abreast.ledgers WHERE body <> '' ORDER BY name
