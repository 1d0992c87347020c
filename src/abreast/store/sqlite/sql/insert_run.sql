-- Create a run; its checksums are written next.
INSERT INTO runs (id, name, kind, state, seed, epoch, created, beat, driver, tags, manifest, checked_from, settled)
VALUES (:id, :name, :kind, 'running', :seed, 1, :at, :at, :driver, :tags, :manifest, 1, 0)
RETURNING number
