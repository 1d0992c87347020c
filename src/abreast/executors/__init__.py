"""Executors: run an item's function as a task or thread, in a process, or as a command."""
