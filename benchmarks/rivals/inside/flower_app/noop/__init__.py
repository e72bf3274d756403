"""Rounds in which nobody trains, for Flower."""
