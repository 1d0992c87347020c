-- What the index events_calls says of a run, without its events.
SELECT id - :base, path FROM events INDEXED BY events_calls WHERE run = :run AND kind = 'call-settled'
