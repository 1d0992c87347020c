-- All requests, with their checksums and what these cover.
SELECT requests.id, requests.sum, runs.id, requests.kind, requests.data, requests.created
FROM requests JOIN runs ON runs.number = requests.run
