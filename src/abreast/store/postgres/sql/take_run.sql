-- Make a driver the run's newest.
UPDATE abreast.runs
SET epoch = %(epoch)s, driver = %(driver)s, state = %(state)s, reason = %(reason)s, ended = %(ended)s, sum = %(sum)s
WHERE id = %(id)s
