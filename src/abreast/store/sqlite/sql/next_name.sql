-- Count one more run of a name.
INSERT INTO names (name, last) VALUES (:name, 1)
ON CONFLICT (name) DO UPDATE SET last = last + 1
RETURNING last
