"""The gateway: a local server that gives other programs' calls lanes, budgets and a record."""
