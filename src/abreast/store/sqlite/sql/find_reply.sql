-- A cached reply.
SELECT model, body, kept, sum FROM replies WHERE key = ?
