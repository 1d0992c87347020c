-- What happened to one item, which the page shows: without it, all events of the run were read.
CREATE INDEX events_details ON abreast.events (run, abreast.path_key(path), id)
    WHERE kind IN ('attempt-failed', 'limit-waited', 'call-started');
