"""The web page: runs, their lanes and their items, as a fold of the journal; live over server-sent events."""
