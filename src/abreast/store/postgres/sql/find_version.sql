-- Whether there are tables of a store, how many relations are in the schema, and the encoding of the database.
SELECT
    to_regclass('abreast.migrations') IS NOT NULL,
    (SELECT count(*) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = %(schema)s),
    current_setting('server_encoding')
