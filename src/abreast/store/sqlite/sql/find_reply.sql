-- A cached reply.
SELECT body FROM replies WHERE key = ?
