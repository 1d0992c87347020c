-- Make an empty ledger of a shared lane, unless there is one.
INSERT INTO abreast.ledgers (name, body, sum) VALUES (%(name)s, '', 0) ON CONFLICT (name) DO NOTHING
