-- Delete a run's row.
DELETE FROM abreast.runs WHERE number = %(run)s
