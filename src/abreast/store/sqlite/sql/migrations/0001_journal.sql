-- The journal: runs, their events, the bodies too big to sit among them, and the requests to their drivers.

CREATE TABLE names (
    name TEXT PRIMARY KEY,
    last INTEGER NOT NULL           -- the N of the newest `name-N`; never goes down, so no id is used twice
) WITHOUT ROWID;

CREATE TABLE runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    seed TEXT NOT NULL,             -- a whole number of any size
    epoch INTEGER NOT NULL,         -- how many drivers it has had; every commit proves it is the newest one's
    created REAL NOT NULL,
    ended REAL,
    beat REAL NOT NULL,             -- wall time of the newest event
    last_seq INTEGER NOT NULL DEFAULT 0,
    driver TEXT,                    -- JSON, NULL once it has ended
    reason TEXT NOT NULL DEFAULT '',
    tags TEXT NOT NULL,             -- JSON
    spent TEXT NOT NULL DEFAULT '{}',
    manifest TEXT NOT NULL          -- JSON
);

CREATE INDEX runs_by_name ON runs (name);

-- One append-only b-tree: id is the run's number << 40 | seq, so a run's events lie together and in order.
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    kind TEXT NOT NULL,
    path TEXT NOT NULL,
    lane TEXT,
    mono REAL NOT NULL,
    wall REAL NOT NULL,
    data TEXT,                      -- JSON, NULL when empty
    body TEXT                       -- NULL when there is none, or when it is in blobs
);

-- Outcomes: the newest id of each path wins, since an item that is retried settles again.
CREATE INDEX events_settled ON events (run, path) WHERE kind = 'item-settled';

-- Inputs, in the order they were read, and whether that was all of them.
CREATE INDEX events_read ON events (run) WHERE kind IN ('item-read', 'items-complete');

-- Whether a map was started before: asked for each map of a resumed run, which may have as many maps as events.
CREATE INDEX events_maps ON events (run, path) WHERE kind = 'map-started';

CREATE TABLE blobs (
    id INTEGER PRIMARY KEY,         -- the event's
    body TEXT NOT NULL
);

CREATE TABLE requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,             -- JSON
    created REAL NOT NULL,
    answered REAL
);

CREATE INDEX requests_open ON requests (run) WHERE answered IS NULL;
