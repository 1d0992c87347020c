-- Make this transaction wait for the disk when it commits.
SELECT abreast.wait_for_disk()
