-- What the index events_maps says of a run, without its events.
SELECT id - :base, path FROM events INDEXED BY events_maps WHERE run = :run AND kind = 'map-started'
