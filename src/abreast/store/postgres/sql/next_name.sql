-- Count one more run of a name.
INSERT INTO abreast.names AS counted (name, last) VALUES (%(name)s, 1)
ON CONFLICT (name) DO UPDATE SET last = counted.last + 1
RETURNING last
