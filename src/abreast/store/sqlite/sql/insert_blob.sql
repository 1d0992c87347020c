-- Store a long body beside its event.
INSERT INTO blobs (id, body) VALUES (?, ?)
