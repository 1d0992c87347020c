"""Puts values into shell scripts so that the shell reads them as data, never as code."""
