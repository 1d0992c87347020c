"""Views of a run: its journal folded into the data that the terminal and the page draw."""
