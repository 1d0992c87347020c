"""Language models: the model port, the lanes of providers, and one adapter per provider."""
