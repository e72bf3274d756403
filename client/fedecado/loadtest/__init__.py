"""Many simulated workers against a real coordinator: the real protocol, without models, data or torch.

A generator process holds any number of workers on one event loop; several processes, or machines, share
a test by the numbers of their workers. `swarm` and what it uses runs in the generators, the rest in their
parent, `fedecado loadtest`.
"""
