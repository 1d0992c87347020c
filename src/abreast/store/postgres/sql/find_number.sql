-- The number of a run.
SELECT number FROM abreast.runs WHERE id = %(id)s
