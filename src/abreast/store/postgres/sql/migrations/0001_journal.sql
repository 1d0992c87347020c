-- The journal: runs, the leases of their drivers, events, bodies too big to sit among them, requests and replies.
-- Paths, lanes and bodies are UTF-8 in BYTEA: TEXT can't hold every character of Unicode (not U+0000), and bytes sort as in SQLite.

CREATE TABLE abreast.migrations (
    version INTEGER PRIMARY KEY,
    applied TIMESTAMPTZ NOT NULL DEFAULT now()
);

CREATE TABLE abreast.names (
    name TEXT COLLATE "C" PRIMARY KEY,
    last BIGINT NOT NULL            -- the N of the newest `name-N`; never goes down, so no id is used twice
);

-- A commit updates the row of its run: what is long in it is stored apart, and a page has room for new versions of it.
CREATE TABLE abreast.runs (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL UNIQUE,
    name TEXT COLLATE "C" NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    seed TEXT NOT NULL,             -- a whole number of any size
    epoch BIGINT NOT NULL,          -- how many drivers it has had; every commit proves it is the newest one's
    created DOUBLE PRECISION NOT NULL,
    ended DOUBLE PRECISION,
    beat DOUBLE PRECISION NOT NULL, -- wall time of the newest event
    last_seq BIGINT NOT NULL DEFAULT 0,
    last_commit TEXT NOT NULL DEFAULT '', -- token of the newest commit: one that is sent again is recognised
    driver TEXT,                    -- JSON, NULL once it has ended
    reason TEXT NOT NULL DEFAULT '',
    tags TEXT NOT NULL,             -- JSON
    spent TEXT NOT NULL DEFAULT '{}',
    manifest TEXT NOT NULL,         -- JSON
    checked_from BIGINT,            -- seq of the first event with a checksum (see checksums.py)
    tail BIGINT,                    -- the checksum of the newest event
    settled BIGINT,                 -- how many events are item-settled
    fixed BIGINT,                   -- the checksum of the columns that never change
    sum BIGINT                      -- the checksum of the others, but for last_commit
) WITH (fillfactor = 50, toast_tuple_target = 256);

CREATE INDEX runs_by_name ON abreast.runs (name);

-- Who drives a run: a driver renews its lease; one that has expired may be taken by another driver.
CREATE TABLE abreast.leases (
    run BIGINT PRIMARY KEY,
    holder TEXT UNIQUE,             -- token of the driver; NULL if there is none
    process TEXT,                   -- its process, as other processes on the same machine can find it
    until TIMESTAMPTZ               -- by the clock of the server, which all hosts share
) WITH (fillfactor = 50);

-- What an index has of a path: all of it, or its head and a digest if it is longer than an index can hold.
CREATE FUNCTION abreast.path_key(path BYTEA) RETURNS BYTEA LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS
$$ SELECT CASE WHEN length(path) <= 1000 THEN path ELSE substring(path FOR 1000) || sha256(path) END $$;

-- Make the transaction wait for the disk when it commits, also where the server's default is not to.
CREATE FUNCTION abreast.wait_for_disk() RETURNS BOOLEAN LANGUAGE sql VOLATILE AS
$$ SELECT current_setting('synchronous_commit') <> 'off' OR set_config('synchronous_commit', 'on', true) = 'on' $$;

-- id is the run's number << 40 | seq, so a run's events lie together and in order.
CREATE TABLE abreast.events (
    id BIGINT PRIMARY KEY,
    run BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    path BYTEA NOT NULL,
    lane BYTEA,
    mono DOUBLE PRECISION NOT NULL,
    wall DOUBLE PRECISION NOT NULL,
    data TEXT,                      -- JSON, NULL when empty
    body BYTEA,                     -- NULL when there is none, or when it is in blobs
    epoch BIGINT,                   -- the number of the driver that wrote it
    sum BIGINT,                     -- its checksum, chained within the run
    state TEXT                      -- of an outcome, as in data, which may hold characters that PostgreSQL's JSON refuses
);

-- Outcomes: the newest id of each path wins, since an item that is retried settles again.
CREATE INDEX events_settled ON abreast.events (run, abreast.path_key(path), id) INCLUDE (state) WHERE kind = 'item-settled';

-- Inputs, in the order they were read, and whether that was all of them.
CREATE INDEX events_read ON abreast.events (run, id) WHERE kind IN ('item-read', 'items-complete');

-- Whether a map was started before: asked for each map of a resumed run, which may have as many maps as events.
CREATE INDEX events_maps ON abreast.events (run, abreast.path_key(path)) WHERE kind = 'map-started';

-- Calls to models, found by their path when a run goes on.
CREATE INDEX events_calls ON abreast.events (run, abreast.path_key(path)) WHERE kind = 'call-settled';

CREATE TABLE abreast.blobs (
    id BIGINT PRIMARY KEY,          -- the event's
    body BYTEA NOT NULL
);

CREATE TABLE abreast.requests (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run BIGINT NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,             -- JSON
    created DOUBLE PRECISION NOT NULL,
    answered DOUBLE PRECISION,
    sum BIGINT,                     -- its checksum
    token TEXT NOT NULL UNIQUE      -- a request that is sent again is recognised
);

CREATE INDEX requests_open ON abreast.requests (run) WHERE answered IS NULL;

CREATE TABLE abreast.replies (
    key TEXT COLLATE "C" PRIMARY KEY, -- a digest of the model and the whole request
    model TEXT COLLATE "C" NOT NULL,
    body TEXT NOT NULL,             -- JSON
    kept DOUBLE PRECISION NOT NULL, -- wall time
    sum BIGINT                      -- its checksum
);
