"""The web page: runs, their lanes and their items, computed from the journal and kept live."""
