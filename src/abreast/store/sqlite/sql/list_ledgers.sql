-- All ledgers of shared lanes, with their checksums and what these cover.
SELECT name, sum, name, body FROM ledgers ORDER BY name
