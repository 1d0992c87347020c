-- Count the outcomes beneath a prefix, up to :most.
SELECT count(*)
FROM (
    SELECT 1
    FROM events INDEXED BY events_settled
    WHERE run = :run AND kind = 'item-settled' AND path >= :floor AND path < :high
        AND (path = :prefix OR path >= :low)
    LIMIT :most
)
