"""HTTP for the adapters of providers."""
