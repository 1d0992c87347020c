-- Count the outcomes beneath a prefix, up to a number.
SELECT count(*)
FROM (
    SELECT
    FROM abreast.events
    WHERE run = %(run)s AND kind = 'item-settled'
        AND abreast.path_key(path) >= %(low_key)s AND abreast.path_key(path) < %(high_key)s
        AND (path = %(prefix)s OR path >= %(low)s AND path < %(high)s)
    LIMIT %(most)s
) AS counted
