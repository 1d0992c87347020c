"""The governor: finds how many calls a provider takes, and how fast, from its replies."""
