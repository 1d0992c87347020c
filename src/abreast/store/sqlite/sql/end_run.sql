-- Say how the driving ended, if it is still this driver's to say.
UPDATE runs
SET state = :state, reason = :reason, ended = :at, driver = NULL
WHERE id = :id AND epoch = :epoch
