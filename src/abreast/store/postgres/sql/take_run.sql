-- Make a driver the run's newest.
UPDATE abreast.runs
SET epoch = epoch + 1, driver = %(driver)s, state = 'running', reason = '', ended = NULL
WHERE number = %(run)s
