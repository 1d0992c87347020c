-- Create a run.
INSERT INTO abreast.runs (id, name, kind, state, seed, epoch, created, beat, driver, tags, manifest)
VALUES (%(id)s, %(name)s, %(kind)s, 'running', %(seed)s, 1, %(at)s, %(at)s, %(driver)s, %(tags)s, %(manifest)s)
RETURNING number
