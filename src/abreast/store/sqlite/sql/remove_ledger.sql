-- Forget what is held and spent of a shared lane.
DELETE FROM ledgers WHERE name = ?
