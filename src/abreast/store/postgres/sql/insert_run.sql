-- Create a run.
INSERT INTO abreast.runs (
    id, name, kind, seed, created, tags, manifest,
    state, epoch, ended, beat, last_seq, driver, reason, spent, checked_from, tail, settled, fixed, sum
)
VALUES (
    %(id)s, %(name)s, %(kind)s, %(seed)s, %(created)s, %(tags)s, %(manifest)s,
    %(state)s, %(epoch)s, %(ended)s, %(beat)s, %(last_seq)s, %(driver)s, %(reason)s, %(spent)s,
    %(checked_from)s, %(tail)s, %(settled)s, %(fixed)s, %(sum)s
)
RETURNING number
