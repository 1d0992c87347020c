"""The journal folded into data that the terminal and the page draw."""
