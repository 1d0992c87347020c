-- Count the cached replies of each model, with their total length and oldest and newest time.
SELECT model, count(*), sum(length(body))::bigint, min(kept), max(kept) FROM abreast.replies GROUP BY model ORDER BY model
