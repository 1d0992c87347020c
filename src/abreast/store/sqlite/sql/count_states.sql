-- How many items are in each state, by the newest outcomes; at most :most of them are counted.
SELECT state, count(*)
FROM (
    SELECT coalesce(json_extract(data, '$.state'), '') AS state, max(id)
    FROM events INDEXED BY events_settled
    WHERE run = :run AND kind = 'item-settled'
    GROUP BY path
    LIMIT :most
)
GROUP BY state
