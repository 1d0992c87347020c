-- How many items are in each state, by the newest outcomes; at most %(most)s of them are counted.
SELECT state, count(*)
FROM (
    SELECT DISTINCT ON (abreast.path_key(path)) coalesce(state, '') AS state
    FROM abreast.events
    WHERE run = %(run)s AND kind = 'item-settled'
    ORDER BY abreast.path_key(path) DESC, id DESC
    LIMIT %(most)s
) AS counted
GROUP BY state
