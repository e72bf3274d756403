"""Ready-made tasks, for trying fedecado out and as patterns to copy."""
