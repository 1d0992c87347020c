-- Forget what is held and spent of a shared lane.
DELETE FROM abreast.ledgers WHERE name = %(name)s
