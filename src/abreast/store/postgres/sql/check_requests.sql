-- All requests, with their checksums and what these cover.
SELECT requests.id, requests.sum, runs.id, requests.kind, requests.data, requests.created
FROM abreast.requests JOIN abreast.runs ON runs.number = requests.run
