"""Language models: one port, wrappers that are models themselves, and a file per provider."""
