-- A reply that was kept.
SELECT body FROM replies WHERE key = ?
