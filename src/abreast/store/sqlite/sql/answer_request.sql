-- Mark a request as carried out; the first time stays.
UPDATE requests SET answered = ? WHERE id = ? AND answered IS NULL
