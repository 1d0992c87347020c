-- What the index events_settled says of a run, without its events.
SELECT id - :base, path FROM events INDEXED BY events_settled WHERE run = :run AND kind = 'item-settled'
