"""A workflow's file, read and checked."""
