-- Ledgers: what the drivers that share a lane hold of it.

CREATE TABLE abreast.ledgers (
    name TEXT COLLATE "C" PRIMARY KEY, -- of the lane
    body TEXT NOT NULL,                -- JSON; empty at first
    sum BIGINT NOT NULL                -- its checksum
) WITH (fillfactor = 50);
