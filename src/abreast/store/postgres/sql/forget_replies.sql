-- Delete replies cached before a time; of one model, or of all.
DELETE FROM abreast.replies WHERE kept < %(before)s AND (%(model)s::text IS NULL OR model = %(model)s)
