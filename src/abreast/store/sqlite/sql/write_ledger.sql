-- Write the ledger of a shared lane.
INSERT INTO ledgers (name, body, sum) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET body = excluded.body, sum = excluded.sum
