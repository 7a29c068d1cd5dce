"""How the workers of a machine open their pool: the first one sizes it by what all have sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from gnnscale.core import Array, ConfigError
from gnnscale.core.shared_memory import SharedMemory
from gnnscale.distributed.channel import Channel, MessageType, Rendezvous, connect, pair
from gnnscale.distributed.heartbeat import STATUS
from gnnscale.distributed.process_group import Group, PeerLostError, trade_values
from gnnscale.features.tiered.buffer import BatchReader, MappedRows, RowBuffer, pool_bytes
from gnnscale.features.tiered.client import BufferClient
from gnnscale.features.tiered.planner import TierPlanner
from gnnscale.features.tiered.server import BufferServer, WorkerReadSource
from gnnscale.features.tiered.sizing import SampledBatches, TierSizes
from gnnscale.features.tiered.source import RowSource
from gnnscale.features.tiered.store import TieredReader, WorkerPool


@dataclass(frozen=True, kw_only=True)
class BufferPlan:
    """What fills a pool."""

    source: RowSource
    #: has the rows of the planner's fixed slots; None without such
    file: MappedRows | None = None
    #: whether each worker reads what its steps miss; if not, the first one reads for all
    delegates: bool = False
    planner: TierPlanner
    sizes: TierSizes
    kept: Array | None = None  #: vertices whose rows are in memory before the first step, for good
    values: Any  #: plain values for every worker


#: Opens what a worker reads of by itself, if it is one of several, by the pool's plain values.
OpenSource = Callable[[Any], RowSource]
#: Plans the pool of workers with these samples, in the order of local ranks.
PlanPool = Callable[[Sequence[SampledBatches]], BufferPlan]


@dataclass(frozen=True, kw_only=True)
class BufferHandle:
    """One worker's view of the pool."""

    rows: TieredReader
    slots: Array  #: ``[num_slots, width]``
    values: Any  #: those of ``BufferPlan``


def open_pool(
    group: Group,
    sample: SampledBatches,
    open_source: OpenSource,
    plan: PlanPool,
    *,
    file: MappedRows | None = None,
) -> BufferHandle:
    """Open the pool of this machine's workers; all processes come here at the same time.

    Args:
        sample: of this worker.
        plan: is called by the worker of local rank 0.
        file: the one that ``plan`` may put in front of the pool.

    Raises:
        ConfigError: the rows of a step do not fit into memory; in each worker of the machine.
        PeerLostError: another one is gone.
    """
    if group.local_size == 1:
        return _alone(plan([sample]))
    meeting = Rendezvous() if group.local_rank == 0 else None
    names = trade_values(None if meeting is None else meeting.name, group)
    if meeting is None:
        return _join(names[group.rank - group.local_rank], group, sample, open_source, file)
    with ExitStack() as unless_opened:
        channels = _welcome(meeting, group.local_size - 1, unless_opened)
        opened = _lead(channels, sample, open_source, plan)
        unless_opened.pop_all()
    return opened


def _alone(planned: BufferPlan) -> BufferHandle:
    """Return the pool of a worker that shares it with no other."""
    source, sizes, file = planned.source, planned.sizes, planned.file
    rows = WorkerPool(source, planned.planner, window=sizes.window, ahead=sizes.ahead, file=file)
    if planned.kept is not None:
        rows.fill(planned.kept)
    return BufferHandle(rows=rows, slots=rows.slots, values=planned.values)


def _welcome(meeting: Rendezvous, count: int, closing: ExitStack) -> list[Channel]:
    """Return channels to the other workers, in the order of local ranks."""
    found: dict[int, Channel] = {}
    try:
        with STATUS.waits():
            for _ in range(count):
                channel = meeting.accept()
                closing.callback(channel.close)
                hello = channel.receive()
                if hello is None:
                    raise PeerLostError("lost a worker of this machine")
                found[hello.values] = channel
    finally:
        meeting.close()
    return [channel for _, channel in sorted(found.items())]


def _lead(
    channels: Sequence[Channel],
    sample: SampledBatches,
    open_source: OpenSource,
    plan: PlanPool,
) -> BufferHandle:
    """Open the pool, and let the other workers have it."""
    samples = [sample, *(_received(each) for each in channels)]
    try:
        planned = plan(samples)
    except ConfigError as error:
        for each in channels:
            each.send_values(MessageType.SETUP, {"problem": str(error)})
        raise
    near, far = pair()
    everyone = [far, *channels]
    num_slots, source, sizes = planned.planner.num_slots, planned.source, planned.sizes
    row_bytes = source.width * source.dtype.itemsize
    memory = SharedMemory.reserved(pool_bytes(num_slots, row_bytes, planned.file))
    pool = RowBuffer(num_slots, source.width, source.dtype, file=planned.file, memory=memory)
    delegated = WorkerReadSource(everyone) if planned.delegates else None
    reader = BatchReader(
        delegated or source, planned.planner, pool, ahead=sizes.ahead * len(samples)
    )
    if planned.kept is not None:
        reader.fill(planned.kept, source)
    lead = sizes.window + sizes.ahead
    values = {
        "num_slots": num_slots,
        "lead": lead,
        "delegates": planned.delegates,
        "has_file": planned.file is not None,
        "values": planned.values,
    }
    for each in channels:
        each.send_values(MessageType.SETUP, values)
        each.send_file(memory.descriptor)
    rows = BufferClient(
        near,
        pool.rows,
        source if planned.delegates else open_source(planned.values),
        lead=lead,
        reads=planned.delegates,
        server=BufferServer(reader, everyone, delegated=delegated),
    )
    return BufferHandle(rows=rows, slots=pool.rows, values=planned.values)


def _join(
    name: str,
    group: Group,
    sample: SampledBatches,
    open_source: OpenSource,
    file: MappedRows | None,
) -> BufferHandle:
    """Say what this worker has sampled, and map the pool."""
    with ExitStack() as unless_joined:
        try:
            channel = connect(name)
            unless_joined.callback(channel.close)
            channel.send_values(MessageType.SETUP, group.local_rank)
            _send(channel, sample)
            with STATUS.waits():
                message = channel.receive()
            if message is None:
                raise ConnectionError("it has ended")
            if "problem" in message.values:
                raise ConfigError(message.values["problem"])
            memory = SharedMemory(channel.receive_file())
        except OSError as error:
            raise PeerLostError(f"lost the first worker of this machine ({error})") from error
        unless_joined.pop_all()
    lead, num_slots = message.values["lead"], message.values["num_slots"]
    source = open_source(message.values["values"])
    file = file if message.values["has_file"] else None
    pool = RowBuffer(num_slots, source.width, source.dtype, file=file, memory=memory)
    rows = BufferClient(channel, pool.rows, source, lead=lead, reads=message.values["delegates"])
    return BufferHandle(rows=rows, slots=pool.rows, values=message.values["values"])


#: Of a sample: what is sent as plain values.
_SENT = ("num_bytes", "computing_bytes", "window_above")


def _send(channel: Channel, sample: SampledBatches) -> None:
    values = {name: getattr(sample, name) for name in _SENT}
    channel.send_values(MessageType.SETUP, [len(sample.vertices), values])
    for each in sample.vertices:
        channel.send(MessageType.EXPECT, array=each)


def _received(channel: Channel) -> SampledBatches:
    messages = [channel.receive()]
    if messages[0] is not None:
        messages += [channel.receive() for _ in range(messages[0].values[0])]
    found = [each for each in messages if each is not None]
    if len(found) < len(messages):
        raise PeerLostError("lost a worker of this machine")
    return SampledBatches(vertices=[each.array for each in found[1:]], **found[0].values[1])


def together(samples: Sequence[SampledBatches]) -> SampledBatches:
    """Return the batches of all workers, step by step in the order of local ranks."""
    steps = zip_longest(*(each.vertices for each in samples))
    return SampledBatches(
        vertices=[each for step in steps for each in step if each is not None],
        num_bytes=max(each.num_bytes for each in samples),
        computing_bytes=max(each.computing_bytes for each in samples),
        window_above=max(each.window_above for each in samples),
        num_workers=len(samples),
    )
