-- Record how a run ended, if it is as it was read, and give its lease back.
WITH ended AS (
    UPDATE abreast.runs
    SET state = %(state)s, reason = %(reason)s, ended = %(ended)s, driver = NULL, sum = %(sum)s
    WHERE id = %(id)s AND epoch = %(epoch)s AND sum = %(sum_before)s AND abreast.wait_for_disk()
    RETURNING number
), freed AS (
    UPDATE abreast.leases SET holder = NULL, process = NULL, until = NULL
    FROM ended
    WHERE run = ended.number
)
SELECT count(*) FROM ended
