-- Cache a reply; a newer one replaces it.
INSERT INTO replies (key, model, body, kept, sum) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE
SET model = excluded.model, body = excluded.body, kept = excluded.kept, sum = excluded.sum
