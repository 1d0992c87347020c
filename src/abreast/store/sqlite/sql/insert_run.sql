-- Create a run.
INSERT INTO runs (id, name, kind, state, seed, epoch, created, beat, driver, tags, manifest)
VALUES (:id, :name, :kind, 'running', :seed, 1, :at, :at, :driver, :tags, :manifest)
RETURNING number
