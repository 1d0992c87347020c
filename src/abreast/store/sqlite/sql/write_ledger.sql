-- Write the ledger of a shared lane.
INSERT INTO ledgers (name, body) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET body = excluded.body
