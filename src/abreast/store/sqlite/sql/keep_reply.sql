-- Keep a reply; the newest one counts.
INSERT INTO replies (key, model, body, kept) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET model = excluded.model, body = excluded.body, kept = excluded.kept
