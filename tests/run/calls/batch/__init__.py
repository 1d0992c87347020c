"""Tests of calls in batches."""
