"""How each provider's requests are read and replies are written."""
