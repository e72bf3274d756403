"""Any events in any order: nothing is lost, counted twice, kept too long or waited for in vain."""

import copy
import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fedecado.common.errors import RoundError
from fedecado.server.rounds import (
    Accept,
    Aggregated,
    Assign,
    Banned,
    Cancel,
    CloseRound,
    DeadlinePassed,
    Discarded,
    Disconnected,
    DropVersion,
    Effect,
    Engine,
    Enrolled,
    Event,
    Finish,
    LeaseExpired,
    Left,
    Measured,
    Paused,
    Refuse,
    Resumed,
    Rules,
    StartTimer,
    Stopped,
    Target,
    TaskFailed,
    Unbanned,
    UpdateArrived,
    describe,
    timers,
)

CLIENTS = "abcdef"
SWEEPS = 6
"""Within so many sweeps (all tasks answered, all timers fired) another round must close."""


@st.composite
def some_rules(draw: st.DrawFn) -> Rules:
    min_updates = draw(st.integers(1, 3))
    return Rules(
        mode=draw(st.sampled_from(["rounds", "stream"])),
        active=draw(st.one_of(st.integers(1, 5), st.sampled_from([0.3, 0.5, 1.0]))),
        min_clients=draw(st.integers(1, 3)),
        min_updates=min_updates,
        target_updates=draw(st.one_of(st.none(), st.integers(min_updates, 5))),
        deadline=draw(st.sampled_from([None, 10.0])),
        lease=draw(st.sampled_from([None, 20.0])),
        max_staleness=draw(st.integers(0, 3)),
        max_rounds=draw(st.sampled_from([None, None, None, 4])),
        target=Target.parse("m>=1"),
        rest_tolerance=draw(st.sampled_from([None, 0.1])),
        seed=draw(st.integers(0, 3)),
    )


class World:
    """The driver, and a simple model of what the engine may do."""

    def __init__(self, rules: Rules) -> None:
        self.engine = Engine(rules)
        self.twin: Engine | None = None
        """A restored engine that is told the same."""
        self.log: list[tuple[Event, list[Effect]]] = []
        self.connected: dict[str, bool] = {}
        self.banned: set[str] = set()
        self.open: dict[str, Assign] = {}
        self.given: dict[int, Assign] = {}
        self.ready: list[int] = []
        self.closing: list[int] = []
        self.accepted: dict[int, str] = {}
        self.versions = {0}
        self.timers: list[StartTimer] = []
        self.finished = False
        self.closed = 0

    def send(self, event: Event) -> None:
        self.before(event)
        effects = self.engine.handle(event)
        if self.twin is not None:
            assert self.twin.handle(event) == effects
        self.log.append((event, effects))
        for effect in effects:
            self.carry_out(event, effect)
        self.notice_silent_cancels()

    def before(self, event: Event) -> None:
        """What an event means whatever the engine makes of it."""
        match event:
            case Enrolled(client, _, tasks):
                self.connected[client] = True
                if client in self.open and self.open[client].task not in tasks:
                    del self.open[client]
            case Disconnected(client):
                self.connected[client] = False
            case Unbanned(client):
                self.banned.discard(client)
            case Left(client) | Banned(client):
                if isinstance(event, Banned):
                    self.banned.add(client)
                self.connected.pop(client, None)
                self.open.pop(client, None)
                self.ready = [task for task in self.ready if self.accepted[task] != client]
            case TaskFailed(client, task):
                if client in self.open and self.open[client].task == task:
                    del self.open[client]
            case Aggregated():
                self.versions.add(self.engine.version + 1)
                self.closing = []
            case Discarded():
                self.closing = []

    def carry_out(self, event: Event, effect: Effect) -> None:
        match effect:
            case Assign():
                self.assign(effect)
            case Accept():
                self.accept(effect)
            case Refuse(task, client):
                assert client not in self.open or self.open[client].task != task or self.finished
            case Cancel(task, client):
                assert self.connected[client]
                if isinstance(event, Enrolled):
                    assert client not in self.open or self.open[client].task != task
                else:
                    assert self.open.pop(client).task == task
            case CloseRound(_, tasks):
                assert list(tasks) == self.ready
                assert len(tasks) >= self.engine.rules.min_updates
                assert len({self.accepted[task] for task in tasks}) == len(tasks)
                assert not self.closing
                self.closing, self.ready = list(tasks), []
                self.closed += 1
            case DropVersion(version):
                self.versions.remove(version)
            case StartTimer():
                self.timers.append(effect)
            case Finish():
                assert not self.finished
                self.finished = True

    def assign(self, effect: Assign) -> None:
        client = effect.client
        assert self.connected[client]
        assert client not in self.open, "at most one open task"
        assert client not in {self.accepted[task] for task in self.ready}, "one update per round"
        assert effect.task not in self.given
        assert effect.version == self.engine.version
        assert effect.version in self.versions
        assert not self.finished
        assert not self.engine.paused
        self.open[client] = self.given[effect.task] = effect

    def accept(self, effect: Accept) -> None:
        if effect.duplicate:
            assert self.accepted[effect.task] == effect.client
            return
        assert effect.task not in self.accepted, "counted twice"
        assert self.open.pop(effect.client).task == effect.task
        self.accepted[effect.task] = effect.client
        self.ready.append(effect.task)

    def notice_silent_cancels(self) -> None:
        """A disconnected client cannot be told that its task was cancelled."""
        for client in [client for client in self.open if not self.connected[client]]:
            if self.engine.roster[client].task is None:
                del self.open[client]

    def check(self) -> None:
        engine = self.engine
        assert {c: engine.roster[c].task for c in self.connected if engine.roster[c].task} == {
            client: assigned.task for client, assigned in self.open.items()
        }
        assert list(engine.ready) == self.ready
        assert list(engine.closing) == self.closing
        assert engine.enrolled == len(self.connected)
        assert engine.banned.keys() == self.banned
        assert not self.banned & self.connected.keys()
        assert engine.roster.connected == sum(self.connected.values())
        opened = [assigned.task for assigned in self.open.values()]
        needed = {self.given[task].version for task in [*opened, *self.ready, *self.closing]}
        assert self.versions == needed | {engine.version}
        assert describe(engine)
        self.check_wait()

    def check_wait(self) -> None:
        """Whatever is waited for has a reason that can end."""
        engine, rules = self.engine, self.engine.rules
        assert set(timers(engine)) <= {
            StartTimer(t.seconds, engine.round, t.task)
            for t in self.timers
            if t.task or t.round == engine.round
        }
        if engine.finished or engine.closing or engine.paused:
            return
        assert engine.open or engine.roster.connected < engine.needed
        if engine.open and not engine.running():
            assert not engine.roster.idle
            assert len(engine.ready) < rules.min_updates
        if engine.open and engine.late:
            assert len(engine.ready) < rules.min_updates

    def fire(self, timer: StartTimer) -> None:
        self.timers.remove(timer)
        self.send(DeadlinePassed(timer.round) if timer.task is None else LeaseExpired(timer.task))

    def sweep(self, clients: list[str]) -> None:
        """Everyone answers, every timer fires, every aggregation ends."""
        clients = [client for client in clients if client not in self.banned]
        for client in clients:
            held = self.open.get(client)
            self.send(Enrolled(client, 10, (held.task,) if held else ()))
        for client in clients:
            if client in self.open:
                self.send(UpdateArrived(client, self.open[client].task))
                self.check()
        for timer in list(self.timers):
            self.fire(timer)
            self.check()
        if self.closing:
            self.send(Aggregated(1.0))
            self.check()


class Rounds(RuleBasedStateMachine):
    @initialize(rules=some_rules(), clients=st.lists(st.sampled_from(CLIENTS), unique=True))
    def begin(self, rules: Rules, clients: list[str]) -> None:
        self.world = World(rules)
        for client in clients:
            self.world.send(Enrolled(client, 10))

    @rule(client=st.sampled_from(CLIENTS), samples=st.integers(1, 50), holding=st.booleans())
    def enrol(self, client: str, samples: int, holding: bool) -> None:
        held = self.world.open.get(client)
        self.come(Enrolled(client, samples, (held.task,) if held and holding else ()))

    def come(self, event: Enrolled) -> None:
        """A banned client is turned away, and that changes nothing."""
        if event.client not in self.world.banned:
            self.world.send(event)
            return
        before = self.world.engine.snapshot()
        with pytest.raises(RoundError, match="banned"):
            self.world.engine.handle(event)
        assert self.world.engine.snapshot() == before

    @rule(client=st.sampled_from(CLIENTS))
    def ban(self, client: str) -> None:
        self.world.send(Banned(client, "why not"))

    @precondition(lambda self: self.world.banned)
    @rule(data=st.data())
    def unban(self, data: st.DataObject) -> None:
        self.world.send(Unbanned(data.draw(st.sampled_from(sorted(self.world.banned)))))

    @rule(client=st.sampled_from(CLIENTS), tasks=st.lists(st.integers(1, 12), max_size=3))
    def enrol_claiming(self, client: str, tasks: list[int]) -> None:
        self.come(Enrolled(client, 10, tuple(tasks)))

    @precondition(lambda self: self.world.connected)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        self.world.send(Disconnected(data.draw(st.sampled_from(sorted(self.world.connected)))))

    @precondition(lambda self: self.world.connected)
    @rule(data=st.data(), back=st.booleans())
    def leave(self, data: st.DataObject, back: bool) -> None:
        client = data.draw(st.sampled_from(sorted(self.world.connected)))
        self.world.send(Left(client))
        if back:
            self.world.send(Enrolled(client, 10))

    @precondition(lambda self: self.world.open)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        client, assigned = data.draw(st.sampled_from(sorted(self.world.open.items())))
        self.world.send(UpdateArrived(client, assigned.task))

    @precondition(lambda self: self.world.open)
    @rule(share=st.integers(1, 6))
    def deliver_many(self, share: int) -> None:
        for client, assigned in sorted(self.world.open.items())[:share]:
            self.world.send(UpdateArrived(client, assigned.task))

    @precondition(lambda self: self.world.connected)
    @rule(data=st.data(), task=st.integers(1, 30))
    def deliver_anything(self, data: st.DataObject, task: int) -> None:
        self.world.send(UpdateArrived(data.draw(st.sampled_from(sorted(self.world.connected))), task))

    @precondition(lambda self: self.world.open)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        client, assigned = data.draw(st.sampled_from(sorted(self.world.open.items())))
        self.world.send(TaskFailed(client, assigned.task))

    @precondition(lambda self: self.world.timers)
    @rule(data=st.data())
    def fire(self, data: st.DataObject) -> None:
        self.world.fire(data.draw(st.sampled_from(self.world.timers)))

    @rule()
    def fire_stray(self) -> None:
        self.world.send(LeaseExpired(1000))
        self.world.send(DeadlinePassed(0))

    @precondition(lambda self: self.world.closing)
    @rule(rate=st.sampled_from([1.0, 1.0, 1.0, 0.01]))
    def aggregated(self, rate: float) -> None:
        self.world.send(Aggregated(rate))

    @precondition(lambda self: self.world.closing)
    @rule()
    def discarded(self) -> None:
        self.world.send(Discarded())

    @precondition(lambda self: len(self.world.log) > 20)
    @rule(value=st.sampled_from([0.0, 0.5, 0.9, 1.0]))
    def measured(self, value: float) -> None:
        self.world.send(Measured(self.world.engine.version, {"m": value}))

    @rule(pause=st.booleans())
    def pause_or_resume(self, pause: bool) -> None:
        self.world.send(Paused() if pause else Resumed())

    @precondition(lambda self: len(self.world.log) > 20)
    @rule()
    def stop(self) -> None:
        self.world.send(Stopped())

    @rule(data=st.data())
    def nonsense(self, data: st.DataObject) -> None:
        events: list[Event] = [Disconnected("x"), Left("x"), UpdateArrived("x", 1), TaskFailed("x", 1)]
        events.append(Enrolled("x", 0))
        if not self.world.closing:
            events += [Aggregated(1.0), Discarded()]
        before = self.world.engine.snapshot()
        with pytest.raises(RoundError):
            self.world.engine.handle(data.draw(st.sampled_from(events)))
        assert self.world.engine.snapshot() == before

    @rule()
    def restart(self) -> None:
        """The coordinator restarts: timers begin anew, and a restored engine acts like the old one."""
        world = self.world
        saved = json.loads(json.dumps(world.engine.snapshot()))
        world.twin = Engine.restore(world.engine.rules, saved)
        world.timers = timers(world.twin)
        assert world.twin.snapshot() == saved

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        replay = Engine(self.world.engine.rules)
        for event, effects in self.world.log:
            assert replay.handle(event) == effects
        for world, clients in self.futures():
            before = world.closed
            for _ in range(SWEEPS):
                world.sweep(clients)
            assert world.finished or world.closed > before, describe(world.engine)

    def futures(self) -> Iterator[tuple[World, list[str]]]:
        """The known clients answer, or they are gone for good and new ones come."""
        known, newcomers = list(CLIENTS), [f"new-{i}" for i in range(6)]
        for clients in (known, newcomers):
            world = copy.deepcopy(self.world)
            world.twin = None
            world.send(Resumed())
            for client in sorted(world.banned):
                world.send(Unbanned(client))
            for client in sorted(world.connected.keys() - set(clients)):
                world.send(Disconnected(client))
            yield world, clients


TestRounds = Rounds.TestCase
TestRounds.settings = settings(
    max_examples=120,
    stateful_step_count=35,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
