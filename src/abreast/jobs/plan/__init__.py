"""Large changes by many hands: a repository divided into subplans, what a division is worth, and the results merged."""
