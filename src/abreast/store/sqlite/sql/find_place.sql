-- How far a run has come: the number of its driver, that of its newest event, and what it has spent.
SELECT epoch, last_seq, spent FROM runs WHERE number = ?
