-- Write the columns of a run that change.
UPDATE runs
SET state = ?, epoch = ?, ended = ?, driver = ?, reason = ?, checked_from = ?, fixed = ?,
    beat = ?, last_seq = ?, spent = ?, tail = ?, settled = ?, sum = ?
WHERE number = ?
