-- What the index events_read says of a run, without its events.
SELECT id - :base, '' FROM events INDEXED BY events_read WHERE run = :run AND kind IN ('item-read', 'items-complete')
