-- Check the epoch and update the run: if no row changes, the run has a newer driver.
UPDATE runs
SET last_seq = max(last_seq, ?), spent = ?, beat = max(beat, ?)
WHERE number = ? AND epoch = ?
