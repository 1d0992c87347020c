-- All ledgers of shared lanes, with their checksums and what these cover.
SELECT name, sum, name, body FROM abreast.ledgers ORDER BY name
