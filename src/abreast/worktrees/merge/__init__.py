"""Snapshots of directories, three-way merges, and applying and undoing them."""
