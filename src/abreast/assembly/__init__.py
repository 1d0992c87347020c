"""The composition root: creates stores, executors, models and tools from their names."""
