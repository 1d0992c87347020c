-- How many runs were added and not removed.
SELECT count FROM totals WHERE name = 'runs'
