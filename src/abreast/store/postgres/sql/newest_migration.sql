-- The number of the newest migration.
SELECT max(version) FROM abreast.migrations
