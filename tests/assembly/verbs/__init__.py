"""Tests of the jobs as functions."""
