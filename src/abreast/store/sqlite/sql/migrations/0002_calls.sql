-- Calls to models, found by their path when a run goes on; and replies kept by what was asked.

CREATE INDEX events_calls ON events (run, path) WHERE kind = 'call-settled';

CREATE TABLE replies (
    key TEXT PRIMARY KEY,           -- a digest of the model and the whole request
    model TEXT NOT NULL,
    body TEXT NOT NULL,             -- JSON
    kept REAL NOT NULL              -- wall time
) WITHOUT ROWID;
