"""Tests of providers' batches."""
