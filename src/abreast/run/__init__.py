"""The durable scope and its one scheduler loop."""
