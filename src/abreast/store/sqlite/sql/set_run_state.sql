-- Write the columns of a run that change.
UPDATE runs
SET state = ?, epoch = ?, ended = ?, beat = ?, last_seq = ?, driver = ?, reason = ?, spent = ?,
    checked_from = ?, tail = ?, settled = ?, fixed = ?, sum = ?
WHERE number = ?
