-- How often something settled beneath a prefix, counted no further than :most.
SELECT count(*)
FROM (
    SELECT 1
    FROM events INDEXED BY events_settled
    WHERE run = :run AND kind = 'item-settled' AND path >= :floor AND path < :high
        AND (path = :prefix OR path >= :low)
    LIMIT :most
)
