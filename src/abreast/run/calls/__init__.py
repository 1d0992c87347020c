"""Model calls: admitted by their lane, attempted, journaled, cached."""
