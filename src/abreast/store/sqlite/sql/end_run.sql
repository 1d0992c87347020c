-- Record how a run ended, if this driver is still its newest.
UPDATE runs
SET state = :state, reason = :reason, ended = :at, driver = NULL
WHERE id = :id AND epoch = :epoch
