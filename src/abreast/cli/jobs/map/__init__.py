"""The map job: its options, input, work, driver and recorded results."""
