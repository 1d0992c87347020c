-- A cached reply.
SELECT body FROM abreast.replies WHERE key = %(key)s
