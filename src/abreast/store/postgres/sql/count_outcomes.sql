-- How many outcomes a run has recorded, those of retried items included.
SELECT count(*) FROM abreast.events WHERE run = %(run)s AND kind = 'item-settled'
