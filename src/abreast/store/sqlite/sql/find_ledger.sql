-- The ledger of a shared lane.
SELECT body, sum FROM ledgers WHERE name = ?
