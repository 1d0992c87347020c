-- Write the columns that a commit changes, if the run is as its driver last wrote it.
UPDATE runs
SET beat = ?, last_seq = ?, spent = ?, tail = ?, settled = ?, sum = ?
WHERE number = ? AND epoch = ? AND sum = ?
