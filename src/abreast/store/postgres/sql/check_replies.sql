-- All cached replies, with their checksums and what these cover.
SELECT key, sum, key, model, body, kept FROM abreast.replies
