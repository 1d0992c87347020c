"""Measure abreast beside its peers, in one run, interleaved."""
