"""Federated jobs in virtual time: parties, a bad network, servers that are killed at any moment, and wrong clocks.

The steps are the pure functions of the servers. What a server has written survives its kill; effects of the last step
may be lost, and processes of parts die with it. Replay a seed with: python -m tests.simulation.federation SEED
"""

import heapq
import math
import random
import sys
from collections import Counter

import msgspec

from weft.frontends.federated.coordination import coordinator as c
from weft.frontends.federated.coordination import participant as p
from weft.frontends.federated.coordination.records import (
    ENDED_STATUSES,
    JobPhase,
    PartFailure,
    PartStatus,
    Wish,
    is_newer,
)
from weft.frontends.federated.schema import Party
from weft.parties.cores import CoreLease, PartyCoreLeases

JOB = "job"
MOST_EVENTS = 1_000_000
RETRIES, MOST_LOST = 1, 8
REFUSED = object()
"""The answer of a party that does not know the sender of a wish any more."""
CALM_S = 400.0
"""The time after which nothing goes wrong any more."""


class KilledError(Exception):
    """The server died in the middle of a step."""


class Driver:
    """The components of a job in order, with retries: what the engine does at the initiator."""

    def __init__(self, server, state):
        self.server = server
        self.done = {name: s for name, s in state.statuses.items() if s == c.SUCCESS}
        self.tries: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.ended = dict(self.done)
        self.running = set()
        self.stopped = False

    def advance(self):
        world = self.server.world
        if self.stopped:
            return
        for name, above in world.dag.items():
            ready = name not in self.ended and name not in self.running
            if ready and all(self.ended.get(one) == c.SUCCESS for one in above):
                self.running.add(name)
                self.server.post_job(c.Begin(name))
        stuck = not self.running
        if stuck:
            self.stopped = True
            status = (
                c.SUCCESS if len(self.ended) == len(world.dag) and set(self.ended.values()) == {c.SUCCESS} else c.FAILED
            )
            self.server.post_job(c.FinishJob(status, "" if status == c.SUCCESS else "a component failed"))

    def component_ended(self, name, status):
        if self.stopped or name not in self.running:
            return
        if status == c.LOST and self.lost[name] < MOST_LOST:
            self.lost[name] += 1
            self.server.post_job(c.Begin(name))
        elif status in (c.FAILED, c.LOST) and self.tries[name] < RETRIES:
            self.tries[name] += 1
            self.server.post_job(c.Begin(name))
        else:
            self.running.discard(name)
            self.ended[name] = status
            self.advance()


class Server:
    """One party: what is on its disk, and what is in its memory."""

    def __init__(self, world, id):
        self.world, self.id = world, id
        self.offset = world.random.choice([0.0, 3600.0, -3600.0, 5.0])
        self.disk_job, self.disk_parts, self.acked = None, {}, {}
        self.cores = world.random.choice([1, 2, 4])
        self.up = True
        self.life = 0
        self.clear()

    def clear(self):
        self.job, self.parts, self.processes, self.driver = None, {}, {}, None
        self.leases = PartyCoreLeases(self.cores)
        self.silent, self.sending, self.wakes = set(), {}, {}
        self.queue, self.busy = [], False

    @property
    def now(self):
        return self.world.time + self.offset

    # ------------------------------------------------------------------------------------------------- life and death

    def kill(self):
        self.up = False
        self.life += 1
        self.clear()
        self.world.at(self.world.random.uniform(0.1, 20), self.start)

    def start(self):
        if self.up:
            return
        self.up = True
        for part, data in self.disk_parts.items():
            self.parts[part] = p.read_participation(data)
        if self.disk_job is not None:
            self.job = c.read_coordination(self.disk_job)
            for part in self.job.parts:
                if part.id == self.id:
                    self.part_of(part)
        runs = self.job is not None and self.job.phase is JobPhase.RUN
        if runs:
            self.driver = Driver(self, self.job)
            self.world.at(0.01, self.alive(self.advance_driver))
        self.queue = [("part", part, p.Restarted()) for part in self.parts]
        if self.job is not None:
            self.queue.append(("job", None, c.Submitted()))
        self.world.at(0.0, self.alive(self.drain))
        self.world.at(0.0, self.alive(self.look_for_initiator))
        for part in self.parts:
            self.world.at(0.0, self.alive(lambda part=part: self.send_report(part)))

    def advance_driver(self):
        if self.driver is not None:
            self.driver.advance()

    def alive(self, action):
        life = self.life
        return lambda: action() if self.up and self.life == life else None

    def wake(self, at, subject, action):
        """Act at a time, unless another wake of the subject comes before."""
        if self.wakes.get(subject, math.inf) <= at:
            return
        self.wakes[subject] = at

        def come():
            if self.wakes.get(subject) == at:
                del self.wakes[subject]
            action()

        self.world.at(max(0.0, at - self.now), self.alive(come))

    def part_of(self, part):
        if part not in self.parts:
            self.parts[part] = p.Participation(job=JOB, part=part, initiator=self.world.initiator)
        return self.parts[part]

    # ------------------------------------------------------------------------------------------------------------ steps

    def post_job(self, event):
        self.queue.append(("job", None, event))
        self.drain()

    def post_part(self, part, event):
        self.queue.append(("part", part, event))
        self.drain()

    def drain(self):
        if self.busy:
            return
        self.busy = True
        try:
            while self.queue:
                kind, part, event = self.queue.pop(0)
                if kind == "job":
                    self.step_job(event)
                else:
                    self.step_part(part, event)
        except KilledError:
            self.kill()
        finally:
            self.busy = False
        self.world.check(self)

    def step_job(self, event):
        if self.job is None:
            return
        self.job, effects = c.coordinate(self.job, event, self.now)
        self.disk_job = msgspec.json.encode(self.job)
        self.maybe_die()
        for effect in effects:
            self.maybe_die()
            match effect:
                case c.SendWish(part):
                    if part.id == self.id:
                        self.part_of(part)
                        self.queue.append(("part", part, p.WishReceived(self.job.wishes[str(part)])))
                    else:
                        self.send_wish(part)
                case c.CoordinationWake(at):
                    self.wake(at, None, lambda: self.post_job(c.CoordinationTick()))
                case c.JobReady():
                    self.driver = Driver(self, self.job)
                    self.world.at(0.0, self.alive(self.advance_driver))
                case c.ComponentEnded(component, status, _):
                    if self.driver is not None:
                        self.driver.component_ended(component, status)
                case c.JobEnded():
                    if self.driver is not None:
                        self.driver.stopped = True

    def step_part(self, part, event):
        state, effects = p.participate(self.part_of(part), event, self.now)
        self.parts[part] = state
        self.disk_parts[part] = msgspec.json.encode(state)
        self.maybe_die()
        local = self.id == self.world.initiator.id
        if local and isinstance(event, p.WishReceived) and state.report and p.SendReport() not in effects:
            effects.append(p.SendReport())
        for effect in effects:
            self.maybe_die()
            self.part_effect(part, state, effect, local)

    def part_effect(self, part, state, effect, local):
        world = self.world
        match effect:
            case p.SendReport():
                if local:
                    self.queue.append(("job", None, c.ReportReceived(state.report)))
                else:
                    self.send_report(part)
            case p.LookAt(at):
                self.wake(at, part, lambda: self.post_part(part, p.Looked()))
            case p.AskApproval():
                answer = p.Declined("no") if world.declines == part else p.Approved()
                world.at(world.random.uniform(0, 2), self.alive(lambda: self.post_part(part, answer)))
            case p.TakeCores(cores):
                if why := self.leases.take(CoreLease(JOB, str(part), cores)):
                    self.queue.append(("part", part, p.Declined(why)))
                self.grant()
                if why := self.leases.why(JOB, str(part)):
                    self.queue.append(("part", part, p.CoresQueued(why)))
            case p.ReturnCores():
                self.leases.give_back(JOB, str(part))
                self.grant()
            case p.StartProcess(component, epoch, attempt):
                world.started(self, part, component, epoch, attempt)
            case p.GoProcess(component, epoch, attempt):
                world.go(self, part, component, epoch, attempt)
            case p.StopProcess(component, epoch, attempt, reason):
                end = lambda: world.end(self, part, component, epoch, attempt, PartStatus.CANCELED, reason)  # noqa: E731
                world.at(world.random.uniform(0, 3), self.alive(end))

    def grant(self):
        for lease in self.leases.grant():
            role, _, id = lease.part.partition(" ")
            self.queue.append(("part", Party(role, id), p.CoresGranted()))

    def maybe_die(self):
        if self.world.bad and self.world.random.random() < self.world.death:
            raise KilledError

    # ------------------------------------------------------------------------------------------ documents

    def send_wish(self, part):
        self.deliver(part.id, ("wish", part), lambda: self.job and self.job.wishes.get(str(part)))

    def send_report(self, part):
        if self.world.initiator.id == self.id or self.id in self.world.removed:
            return
        self.deliver(
            self.world.initiator.id, ("report", part), lambda: self.parts[part].report if part in self.parts else None
        )

    def deliver(self, receiver, key, present):
        """Send a document until it is acknowledged, in place of an earlier one about the same part."""
        world = self.world
        turn = self.sending[key] = object()

        def again():
            document = present()
            if self.sending.get(key) is not turn or document is None:
                return
            if self.acked.get(key, (-1, -1)) >= (document.epoch, document.version):
                return
            self.silent.add(receiver)
            self.post_job(c.Unreachable(receiver))
            world.message(self, receiver, key, document)
            world.at(world.random.uniform(1, 4), self.alive(again))

        document = present()
        if document is not None:
            world.message(self, receiver, key, document)  # even if known: the answer has the present report
            world.at(world.random.uniform(1, 4), self.alive(again))

    def receive(self, sender, key, document):
        kind, part = key
        if kind == "wish":
            self.part_of(part)
            self.post_part(part, p.WishReceived(document))
            self.look_for_initiator()
            answer = self.parts[part].report if self.up and part in self.parts else None
        else:
            self.post_job(c.ReportReceived(document))
            answer = self.job.wishes.get(str(part)) if self.up and self.job is not None else None
        if self.up:
            self.world.answer(self, sender, key, document, answer)

    def answered(self, sender, key, document, answer):
        kind, part = key
        self.acked[key] = max(self.acked.get(key, (-1, -1)), (document.epoch, document.version))
        if sender in self.silent:
            self.silent.remove(sender)
            self.post_job(c.Reachable(sender))
        if answer is REFUSED:
            self.post_job(c.Undeliverable(part, PartFailure("the initiator is not known", part.id)))
        elif answer is not None:
            if kind == "wish":
                self.post_job(c.ReportReceived(answer))
            else:
                self.post_part(part, p.WishReceived(answer))
                self.look_for_initiator()

    def look_for_initiator(self):
        """Let parts end whose initiator this party has removed."""
        if self.up and self.id in self.world.removed:
            gone = p.InitiatorGone(PartFailure("the initiator is not known", self.id))
            self.queue += [("part", part, gone) for part in self.parts]
            self.drain()


class World:
    """All parties, their network, and the time."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.time, self.events, self.count, self.steps = 0.0, [], 0, 0
        rng = self.random
        count = rng.randint(2, 4)
        ids = [str(at + 1) for at in range(count)]
        roles = ["guest", *["host"] * (count - 1)]
        parts = [Party(role, id) for role, id in zip(roles, ids, strict=True)]
        if rng.random() < 0.5:
            parts.append(Party("arbiter", rng.choice(ids)))
        self.initiator = parts[0]
        self.loss, self.double = rng.choice([0.0, 0.1, 0.4]), rng.choice([0.0, 0.2])
        self.death = rng.choice([0.0, 0.0, 0.01, 0.05])
        self.fails, self.hangs = rng.choice([0.0, 0.05, 0.3]), rng.choice([0.0, 0.02])
        self.declines = rng.choice(parts) if rng.random() < 0.05 else None
        self.bad = True
        self.cut, self.removed = set(), set()
        self.seen, self.prepared = set(), set()
        names = [f"c{at}" for at in range(rng.randint(1, 4))]
        self.dag = {name: rng.sample(names[:at], rng.randint(0, min(2, at))) for at, name in enumerate(names)}
        runs_at = {name: [one for one in parts if rng.random() < 0.8] or [parts[0]] for name in names}
        used = [part for part in parts if any(part in at for at in runs_at.values())]
        if parts[0] not in used:
            runs_at[names[0]] = [parts[0], *runs_at[names[0]]]
            used = [part for part in parts if any(part in at for at in runs_at.values())]
        self.runs_at = runs_at
        self.servers = {id: Server(self, id) for id in ids}
        first = self.servers[self.initiator.id]
        first.job = c.Coordination(
            job=JOB,
            initiator=self.initiator,
            digest="d",
            runs_at=runs_at,
            parts=used,
            cores={str(part): 1 for part in used},
            fail_after=rng.choice([0.0, 0.0, 100.0]),
            timeout=rng.choice([0.0, 0.0, 0.0, 300.0]),
            time_limits={name: 4.0 for name in names if rng.random() < 0.1},
            waits_for=["before"] if rng.random() < 0.2 else [],
            steps=rng.choice([None, None, None, 1]),
        )
        first.disk_job = msgspec.json.encode(first.job)
        self.at(0.0, lambda: first.up and first.post_job(c.Submitted()))
        self.trouble(ids)

    def trouble(self, ids):
        rng = self.random
        for _ in range(rng.randint(0, 3)):
            server = self.servers[rng.choice(ids)]
            self.at(rng.uniform(0, 60), lambda one=server: one.up and one.kill())
        for _ in range(rng.randint(0, 3)):
            one, other = rng.sample(ids, 2)
            begin, both = rng.uniform(0, 60), rng.random() < 0.5
            lines = {(one, other), (other, one)} if both else {(one, other)}
            self.at(begin, lambda lines=lines: self.cut.update(lines))
            self.at(begin + rng.uniform(1, 150), lambda lines=lines: self.cut.difference_update(lines))
        if rng.random() < 0.2:
            server, begin = self.servers[rng.choice(ids[1:])], rng.uniform(0, 60)
            self.at(begin, lambda: self.removed.add(server.id))
            self.at(begin, server.look_for_initiator)
            if (lasts := rng.choice([0.5, 5.0, 50.0, math.inf])) < math.inf:
                self.at(begin + lasts, lambda: self.removed.discard(server.id))
        first = self.servers[self.initiator.id]
        before = c.JobBefore("before", c.SUCCESS if rng.random() < 0.8 else c.FAILED)
        for at in (rng.uniform(0, 60), CALM_S + 50):  # a server that starts again is told again
            self.at(at, lambda: self.user(first, before))
        for at in (*sorted(rng.uniform(0, 100) for _ in range(3)), CALM_S + 60):
            step = c.GoOn(1 if at < CALM_S else None)
            self.at(at, lambda step=step: self.user(first, step))
        if rng.random() < 0.3:
            self.at(rng.uniform(0, 60), lambda: self.user(first, c.FinishJob(c.CANCELED, "stopped by a user")))
        if rng.random() < 0.3:
            self.at(rng.uniform(30, 200), lambda: self.user(first, None))
        self.at(CALM_S, self.heal)

    def user(self, server, event):
        if not server.up or server.job is None:
            return
        if event is None:
            keep = {name: one for name, one in server.job.statuses.items() if one == c.SUCCESS}
            event = c.Rerun(keep, "other files" if self.random.random() < 0.5 else "")
        server.post_job(event)

    def heal(self):
        self.bad = False
        self.cut.clear()

    # ------------------------------------------------------------------------------------------ events

    def at(self, delay, action):
        self.count += 1
        heapq.heappush(self.events, (self.time + delay, self.count, action))

    def message(self, sender, receiver, key, document):
        data, refused = msgspec.json.encode(document), key[0] == "wish" and receiver in self.removed
        self.carry(
            sender.id,
            receiver,
            lambda: self.arrived(sender.id, receiver, key, msgspec.json.decode(data, type=type(document)), refused),
        )

    def arrived(self, sender, receiver, key, document, refused):
        server = self.servers[receiver]
        if server.up and refused:
            self.answer(server, sender, key, document, REFUSED)
        elif server.up:
            server.receive(sender, key, document)

    def answer(self, server, receiver, key, document, answer):
        def come():
            other = self.servers[receiver]
            if other.up:
                other.answered(server.id, key, document, answer)

        self.carry(server.id, receiver, come)

    def carry(self, sender, receiver, action):
        times = 1 if not self.bad or self.random.random() >= self.double else 2
        for _ in range(times):
            if self.bad and (self.random.random() < self.loss or (sender, receiver) in self.cut):
                continue
            self.at(self.random.expovariate(2.0), action)

    # ------------------------------------------------------------------------------------------ processes

    def started(self, server, part, component, epoch, attempt):
        key = (part, component, epoch, attempt)
        assert key not in self.seen, f"{component} of {part} began twice in epoch {epoch}, attempt {attempt}"
        self.seen.add(key)
        place = (part, component)
        assert place not in server.processes, f"{component} of {part} has two processes"
        server.processes[place] = (epoch, attempt)

        def ready():
            if server.processes.get(place) == (epoch, attempt):
                self.prepared.add(key)
                server.post_part(part, p.ProcessPrepared(component, epoch, attempt))

        self.at(self.random.uniform(0, 2), server.alive(ready))

    def go(self, server, part, component, epoch, attempt):
        for one in self.runs_at[component]:
            assert (one, component, epoch, attempt) in self.prepared, f"{component} of {part} began before {one}"
        chance = self.random.random()
        if chance < self.hangs and self.bad:
            return
        failed = chance < self.hangs + self.fails
        status = PartStatus.FAILED if failed else PartStatus.SUCCESS
        end = lambda: self.end(server, part, component, epoch, attempt, status, "it failed")  # noqa: E731
        self.at(self.random.uniform(0, 5), server.alive(end))

    def end(self, server, part, component, epoch, attempt, status, reason):
        if server.processes.get((part, component)) == (epoch, attempt):
            del server.processes[part, component]
            failure = None if status is PartStatus.SUCCESS else PartFailure(reason, part.id)
            server.post_part(part, p.ProcessEnded(component, epoch, attempt, status, failure))

    @property
    def job_status(self):
        return self.servers[self.initiator.id].job.status

    def check(self, server):
        held = sum(one.cores for one in server.leases.holders())
        assert 0 <= held <= server.cores

    # ------------------------------------------------------------------------------------------ the end

    def run(self):
        first = self.servers[self.initiator.id]
        hung = False
        while self.events and self.steps < MOST_EVENTS:
            self.time, _, action = heapq.heappop(self.events)
            self.steps += 1
            action()
            if not self.bad and not hung and self.time > CALM_S + 300:
                hung = True  # processes that hang for ever end by their user
                self.user(first, c.FinishJob(c.CANCELED, "stopped at last"))
            if self.time > CALM_S + 1500:
                break
        self.expect_end(first)
        return self

    def expect_end(self, first):
        job = first.job
        assert job is not None
        phases = {name: (one.epoch, one.phase) for name, one in job.reports.items()}
        ended = job.phase is JobPhase.END if self.removed else job.settled
        assert ended, f"the job is not settled: {job.phase} {job.status}, reports {phases}"
        given_up = job.cause is not None and job.cause.code == "WEFT604"
        for server in self.servers.values():
            assert server.up
            assert not server.processes, f"party {server.id} has processes: {server.processes}"
            assert server.leases.holders() == server.leases.queue() == []
        for part in job.parts:
            state = self.servers[part.id].parts.get(part)
            if state is None or state.wish is None:
                continue
            if part.id in self.removed:
                assert state.over, f"{part} goes on without its initiator"
                continue
            wish: Wish = state.wish
            if not given_up:
                assert not is_newer(job.wishes[str(part)], wish), f"{part} has not heard of the end"
            assert (wish.job_status, dict(wish.statuses), wish.cause) == (job.status, dict(job.statuses), job.cause)
            assert all(one.status in ENDED_STATUSES for one in state.components.values())
        if job.status == c.SUCCESS:
            assert set(job.statuses.values()) == {c.SUCCESS}
            assert job.cause is None
        elif job.status == c.FAILED:
            assert job.cause is not None


def run(seed):
    """Run the world of a seed; AssertionError names it."""
    try:
        return World(seed).run()
    except Exception as error:
        raise AssertionError(
            f"seed {seed}, replay with: python -m tests.simulation.federation {seed}\n{error}"
        ) from error


if __name__ == "__main__":
    found = run(int(sys.argv[1]))
    print(found.servers[found.initiator.id].job.status, found.steps)
