-- Whether there is an event of that id, by a search for exactly that id.
SELECT id FROM events NOT INDEXED WHERE id = ?
