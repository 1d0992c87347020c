-- Make a driver the run's newest.
UPDATE runs
SET epoch = epoch + 1, driver = :driver, state = 'running', reason = '', ended = NULL
WHERE number = :number
