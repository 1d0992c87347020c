"""The governor: learns from a provider's replies how many calls it accepts, and how fast."""
