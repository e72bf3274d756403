"""The coordinator: numerics, algorithms, rounds. Nothing in here imports torch."""
