"""The store in a PostgreSQL database: several hosts reach it, each drives runs of its own."""
