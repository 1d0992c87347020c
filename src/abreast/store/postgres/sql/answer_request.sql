-- Mark a request as carried out; the first time stays.
UPDATE abreast.requests SET answered = %(at)s WHERE id = %(id)s AND answered IS NULL
