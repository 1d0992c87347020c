-- Cache a reply; a newer one replaces it.
INSERT INTO abreast.replies (key, model, body, kept, sum) VALUES (%(key)s, %(model)s, %(body)s, %(at)s, %(sum)s)
ON CONFLICT (key) DO UPDATE
SET model = excluded.model, body = excluded.body, kept = excluded.kept, sum = excluded.sum
