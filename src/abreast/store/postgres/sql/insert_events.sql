-- Add events as they are stored elsewhere.
WITH added AS (
    INSERT INTO abreast.events (id, run, kind, path, lane, mono, wall, data, body, epoch, sum, state)
    SELECT id, %(run)s, kind, path, lane, mono, wall, data, body, epoch, sum, state
    FROM unnest(
        %(ids)b::bigint[], %(kinds)b::text[], %(paths)b::bytea[], %(lanes)b::bytea[], %(monos)b::float8[],
        %(walls)b::float8[], %(facts)b::text[], %(bodies)b::bytea[], %(epochs)b::bigint[], %(sums)b::bigint[],
        %(states)b::text[]
    ) AS added (id, kind, path, lane, mono, wall, data, body, epoch, sum, state)
)
INSERT INTO abreast.blobs (id, body) SELECT id, body FROM unnest(%(blob_ids)b::bigint[], %(blobs)b::bytea[]) AS added (id, body)
