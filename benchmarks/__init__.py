"""Measured claims: `python -m benchmarks NAME`, or `make bench` for all of them."""
