-- Let the server use the space of deleted rows again.
VACUUM abreast.runs, abreast.leases, abreast.events, abreast.blobs, abreast.requests, abreast.replies
