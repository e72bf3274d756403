"""The sections of the configuration file, one model per table.

Commands pick the sections they need; `Everything` holds them all, and so decides which names
the file and the environment may use. Each section must be complete by its defaults.
"""

from fedecado.common.sections.coordinators import (
    CoordinatorSection,
    EnrolmentSection,
    LimitsSection,
    StoreSection,
)
from fedecado.common.sections.fleets import FleetSection, SimulateSection, UpSection
from fedecado.common.sections.load import LoadSection
from fedecado.common.sections.network import NetworkSection
from fedecado.common.sections.observing import LogSection, ObserveSection, TraceSection
from fedecado.common.sections.rounds import RoundsSection
from fedecado.common.sections.runs import BUILT_IN, QUADRATICS, RunSection, TaskSection
from fedecado.common.sections.solving import AlgorithmSection, RobustSection, SolverSection
from fedecado.common.sections.training import PrivacySection, TrainingSection
from fedecado.common.sections.workers import JoinSection, UploadSection, WorkerSection
from fedecado.common.settings import Settings

__all__ = [
    "BUILT_IN",
    "QUADRATICS",
    "AlgorithmSection",
    "CoordinatorSection",
    "EnrolmentSection",
    "Everything",
    "FleetSection",
    "JoinSection",
    "LimitsSection",
    "LoadSection",
    "LogSection",
    "NetworkSection",
    "ObserveSection",
    "PrivacySection",
    "RobustSection",
    "RoundsSection",
    "RunSection",
    "SimulateSection",
    "SolverSection",
    "StoreSection",
    "TaskSection",
    "TraceSection",
    "TrainingSection",
    "UpSection",
    "UploadSection",
    "WorkerSection",
]


class Everything(Settings):
    """Every section of every command."""

    run: RunSection = RunSection()
    task: TaskSection = TaskSection()
    rounds: RoundsSection = RoundsSection()
    solver: SolverSection = SolverSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    robust: RobustSection = RobustSection()
    training: TrainingSection = TrainingSection()
    privacy: PrivacySection = PrivacySection()
    fleet: FleetSection = FleetSection()
    simulate: SimulateSection = SimulateSection()
    up: UpSection = UpSection()
    loadtest: LoadSection = LoadSection()
    coordinator: CoordinatorSection = CoordinatorSection()
    store: StoreSection = StoreSection()
    worker: WorkerSection = WorkerSection()
    upload: UploadSection = UploadSection()
    network: NetworkSection = NetworkSection()
    enrolment: EnrolmentSection = EnrolmentSection()
    join: JoinSection = JoinSection()
    limits: LimitsSection = LimitsSection()
    observe: ObserveSection = ObserveSection()
    trace: TraceSection = TraceSection()
    log: LogSection = LogSection()
