-- Record a migration.
INSERT INTO abreast.migrations (version) VALUES (%(version)s)
