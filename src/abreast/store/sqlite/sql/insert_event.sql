-- Append an event.
INSERT INTO events (id, run, kind, path, lane, mono, wall, data, body, epoch, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
