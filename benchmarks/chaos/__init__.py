"""Every job under every fault, again and again: what was lost, repeated, changed or left."""
