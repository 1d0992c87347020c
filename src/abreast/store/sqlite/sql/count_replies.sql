-- How many replies of each model are kept, how long they are together, and since when.
SELECT model, count(*), sum(length(body)), min(kept), max(kept) FROM replies GROUP BY model ORDER BY model
