-- The token of a run's newest commit.
SELECT last_commit FROM abreast.runs WHERE id = %(id)s
