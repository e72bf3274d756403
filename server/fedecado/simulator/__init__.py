"""A whole federation in one process on a virtual clock.

It drives the coordinator's own engine and algorithms, with no network: clients are records with a
speed of their own, training happens when a client's result is due. A run is determined by its
workload, its fleet and its seed; its arrivals can be recorded and replayed to the bit.
"""

from fedecado.simulator.fleet import Fleet, Profile, draw_fleet
from fedecado.simulator.history import History, RoundRecord
from fedecado.simulator.simulation import Simulation
from fedecado.simulator.trace import Trace
from fedecado.simulator.workload import Workload

__all__ = ["Fleet", "History", "Profile", "RoundRecord", "Simulation", "Trace", "Workload", "draw_fleet"]
