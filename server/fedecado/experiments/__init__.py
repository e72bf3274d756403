"""Comparisons of algorithms on the same data: grids of runs, tuning, statistics and reports."""
