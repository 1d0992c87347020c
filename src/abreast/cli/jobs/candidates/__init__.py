"""The candidates job: its driver and its permanent failures."""
