-- The columns of a run that change, as they are stored.
SELECT state, epoch, ended, beat, last_seq, driver, reason, spent, checked_from, tail, settled, fixed, sum
FROM runs
WHERE number = ?
