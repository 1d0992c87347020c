-- Keep a big body beside its event.
INSERT INTO blobs (id, body) VALUES (?, ?)
