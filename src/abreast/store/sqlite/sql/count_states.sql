-- How many items are in each state, by their newest outcomes; no more than :most of them are looked at.
SELECT state, count(*)
FROM (
    SELECT coalesce(json_extract(data, '$.state'), '') AS state, max(id)
    FROM events INDEXED BY events_settled
    WHERE run = :run AND kind = 'item-settled'
    GROUP BY path
    LIMIT :most
)
GROUP BY state
