-- Checksums: of each row, chained within a run (see checksums.py); NULL in rows of before.

ALTER TABLE events ADD COLUMN epoch INTEGER;        -- the number of the driver that wrote it
ALTER TABLE events ADD COLUMN sum INTEGER;

ALTER TABLE runs ADD COLUMN checked_from INTEGER;   -- seq of the first event with a checksum
ALTER TABLE runs ADD COLUMN tail INTEGER;           -- the sum of the newest event
ALTER TABLE runs ADD COLUMN settled INTEGER;        -- how many events are item-settled
ALTER TABLE runs ADD COLUMN fixed INTEGER;          -- the sum of the columns that never change
ALTER TABLE runs ADD COLUMN sum INTEGER;            -- the sum of the others

ALTER TABLE requests ADD COLUMN sum INTEGER;
ALTER TABLE replies ADD COLUMN sum INTEGER;

-- How many runs there are, so that a lost row is noticed. Triggers, because a process that opened the store before this
-- migration still adds and removes runs.
CREATE TABLE totals (
    name TEXT PRIMARY KEY,
    count INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO totals SELECT 'runs', count(*) FROM runs;

CREATE TRIGGER runs_inserted AFTER INSERT ON runs BEGIN
    UPDATE totals SET count = count + 1 WHERE name = 'runs';
END;

CREATE TRIGGER runs_deleted AFTER DELETE ON runs BEGIN
    UPDATE totals SET count = count - 1 WHERE name = 'runs';
END;
