-- A cached reply.
SELECT model, body, kept, sum FROM abreast.replies WHERE key = %(key)s
