-- Count the cached replies of each model, with their total length and oldest and newest time.
SELECT model, count(*), sum(length(body)), min(kept), max(kept) FROM replies GROUP BY model ORDER BY model
