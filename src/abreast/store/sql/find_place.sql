-- How far a run has come: the number of its driver, and of its newest event.
SELECT epoch, last_seq FROM runs WHERE number = ?
