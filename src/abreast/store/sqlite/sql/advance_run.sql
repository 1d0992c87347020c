-- Prove the epoch and move the run on: no row changed means that another driver has it.
UPDATE runs
SET last_seq = max(last_seq, ?), spent = ?, beat = max(beat, ?)
WHERE number = ? AND epoch = ?
