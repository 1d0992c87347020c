"""Matrix: models x strategies x inputs x repeats, every cell recorded, scored, resumable, reported."""
