"""Other frameworks, each in an environment of its own, doing the rounds that ours does."""
