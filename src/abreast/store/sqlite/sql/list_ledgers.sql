-- The ledgers of all shared lanes.
SELECT name, body FROM ledgers ORDER BY name
