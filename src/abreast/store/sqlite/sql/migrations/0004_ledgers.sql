-- Ledgers: what the drivers that share a lane hold of it.

CREATE TABLE ledgers (
    name TEXT PRIMARY KEY,          -- of the lane
    body TEXT NOT NULL,             -- JSON
    sum INTEGER NOT NULL
) WITHOUT ROWID;
