"""Drives `abreast map`."""
