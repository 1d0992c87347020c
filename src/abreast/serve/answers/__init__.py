"""The answer to one call: how it is made, passed on, and handed to its connection."""
