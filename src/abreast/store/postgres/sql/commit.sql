-- Append events and advance the run, all at once: nothing if the run is not as it was read, or has this commit already.
WITH advanced AS (
    UPDATE abreast.runs
    SET last_seq = %(last_seq)s, spent = %(spent)s, beat = %(beat)s, tail = %(tail)s, settled = %(settled)s,
        sum = %(sum)s, last_commit = %(token)s
    WHERE number = %(run)s AND epoch = %(epoch)s AND sum = %(sum_before)s AND last_commit <> %(token)s
        AND abreast.wait_for_disk()
    RETURNING number
), added AS (
    INSERT INTO abreast.events (id, run, kind, path, lane, mono, wall, data, body, epoch, sum, state)
    SELECT added.id, number, added.kind, added.path, added.lane, added.mono, added.wall, added.data, added.body,
        %(epoch)s, added.sum, added.state
    FROM advanced CROSS JOIN unnest(
        %(ids)b::bigint[], %(kinds)b::text[], %(paths)b::bytea[], %(lanes)b::bytea[], %(monos)b::float8[],
        %(walls)b::float8[], %(facts)b::text[], %(bodies)b::bytea[], %(sums)b::bigint[], %(states)b::text[]
    ) AS added (id, kind, path, lane, mono, wall, data, body, sum, state)
), added_blobs AS (
    INSERT INTO abreast.blobs (id, body)
    SELECT added.id, added.body
    FROM advanced CROSS JOIN unnest(%(blob_ids)b::bigint[], %(blobs)b::bytea[]) AS added (id, body)
)
SELECT count(*) FROM advanced
