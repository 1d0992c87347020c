-- The ledger of a shared lane.
SELECT body FROM ledgers WHERE name = ?
