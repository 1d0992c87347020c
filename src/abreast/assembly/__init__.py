"""Names to things: the one composition root."""
