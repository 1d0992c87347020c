"""Lanes that processes share: a ledger in the store, and local limits that lease from it."""
