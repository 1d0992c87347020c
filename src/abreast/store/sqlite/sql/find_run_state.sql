-- The columns of a run that change, as they are stored.
SELECT state, epoch, ended, driver, reason, checked_from, fixed, beat, last_seq, spent, tail, settled, sum
FROM runs
WHERE number = ?
