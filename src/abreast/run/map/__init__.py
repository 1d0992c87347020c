"""One map: the scheduler, its reader, attempts, release and journal."""
