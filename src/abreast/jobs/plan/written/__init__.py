"""Plans that people write and edit: patterns of files, parts, and the file of a plan."""
