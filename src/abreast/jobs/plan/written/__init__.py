"""Plans that people write and edit: parts, and the file of a plan."""
