"""The worker: a user's model and data, its local windows, and the curvature it reports.

Importing this package does not import torch; its modules do.
"""
