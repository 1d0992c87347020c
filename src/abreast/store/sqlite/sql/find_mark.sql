-- The number of a run, and what changes whenever something is written to it.
SELECT number, state, epoch, last_seq, tail FROM runs WHERE id = ?
