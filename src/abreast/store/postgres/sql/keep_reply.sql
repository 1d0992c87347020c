-- Cache a reply; a newer one replaces it.
INSERT INTO abreast.replies (key, model, body, kept) VALUES (%(key)s, %(model)s, %(body)s, %(at)s)
ON CONFLICT (key) DO UPDATE SET model = excluded.model, body = excluded.body, kept = excluded.kept
