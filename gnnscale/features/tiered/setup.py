"""Opens the row buffer of a machine's workers: the first worker sizes it by the samples of all."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from gnnscale.core import Array, ConfigError, SharedMemory
from gnnscale.distributed import STATUS, Group, PeerLostError, all_gather_object
from gnnscale.distributed.channel import Channel, Message, MessageType, Rendezvous, connect, pair
from gnnscale.features.tiered.buffer import (
    BatchReader,
    MappedRows,
    RowBuffer,
    RowSource,
    buffer_bytes,
)
from gnnscale.features.tiered.client import BufferClient
from gnnscale.features.tiered.policies import TierPlanner
from gnnscale.features.tiered.server import BufferServer, WorkerReadSource
from gnnscale.features.tiered.sizing import SampledBatches, TierSizes
from gnnscale.features.tiered.store import TieredReader, WorkerBuffer


@dataclass(frozen=True, kw_only=True)
class BufferPlan:
    """Plan of a row buffer: backing store, slot planner, sizes, and rows from the start."""

    source: RowSource
    file: MappedRows | None = None  #: rows of the planner's fixed slots. None: no fixed slots
    #: whether each worker reads the missing rows of its steps; otherwise the first worker reads for
    #: all
    delegates: bool = False
    planner: TierPlanner
    sizes: TierSizes
    #: vertices whose rows are read before the first step and never replaced
    kept: Array | None = None
    values: Any  #: plain values from which every worker opens its backing store


#: Function that opens a worker's backing store, given ``BufferPlan.values``.
OpenSource = Callable[[Any], RowSource]
#: Function that plans the buffer, given the samples of all workers in the order of local ranks.
PlanPool = Callable[[Sequence[SampledBatches]], BufferPlan]


@dataclass(frozen=True, kw_only=True)
class BufferHandle:
    """Worker's reader of its machine's row buffer, with the buffer and the plan's values."""

    rows: TieredReader
    slots: Array  #: ``[num_slots, width]`` the buffer
    values: Any  #: ``BufferPlan.values``


def open_buffer(
    group: Group,
    sample: SampledBatches,
    open_source: OpenSource,
    plan: PlanPool,
    *,
    file: MappedRows | None = None,
) -> BufferHandle:
    """Return access to the buffer of this machine's workers; all processes call this together.

    ``sample`` has the first batches of this worker. The worker of local rank 0 calls ``plan``,
    which may map ``file`` onto the first slots; every other worker calls ``open_source``.
    ConfigError, in each worker: the rows of a step exceed the memory. PeerLostError: another worker
    is gone.
    """
    if group.local_size == 1:
        return _open_for_one(plan([sample]))
    meeting = Rendezvous() if group.local_rank == 0 else None
    names = all_gather_object(None if meeting is None else meeting.name, group)
    if meeting is None:
        return _join(names[group.rank - group.local_rank], group, sample, open_source, file)
    with ExitStack() as on_error:
        channels = _accept_workers(meeting, group.local_size - 1, on_error)
        handle = _lead(channels, sample, open_source, plan)
        on_error.pop_all()
    return handle


def _open_for_one(planned: BufferPlan) -> BufferHandle:
    """Open and fill the buffer of a machine's only worker as planned."""
    source, sizes, file = planned.source, planned.sizes, planned.file
    rows = WorkerBuffer(source, planned.planner, window=sizes.window, ahead=sizes.ahead, file=file)
    if planned.kept is not None:
        rows.fill(planned.kept)
    return BufferHandle(rows=rows, slots=rows.slots, values=planned.values)


def _accept_workers(meeting: Rendezvous, count: int, on_error: ExitStack) -> list[Channel]:
    """Return channels to the ``count`` other workers of this machine, in order of local ranks.

    They connect at ``meeting``; ``on_error`` closes the channels.
    """
    channels: dict[int, Channel] = {}
    try:
        with STATUS.waits():
            for _ in range(count):
                channel = meeting.accept()
                on_error.callback(channel.close)
                channels[_receive(channel).values] = channel
    finally:
        meeting.close()
    return [channel for _, channel in sorted(channels.items())]


def _lead(
    channels: Sequence[Channel], sample: SampledBatches, open_source: OpenSource, plan: PlanPool
) -> BufferHandle:
    """Plan, fill and share the buffer as the first worker, start its server, and return access.

    ``channels`` lead to the other workers, which send their samples.
    """
    samples = [sample, *(_receive_sample(channel) for channel in channels)]
    try:
        planned = plan(samples)
    except ConfigError as error:
        for channel in channels:
            channel.send_values(MessageType.SETUP, {"problem": str(error)})
        raise
    client_end, server_end = pair()
    server_ends = [server_end, *channels]
    num_slots, source, sizes = planned.planner.num_slots, planned.source, planned.sizes
    row_bytes = source.width * source.dtype.itemsize
    memory = SharedMemory.reserved(buffer_bytes(num_slots, row_bytes, planned.file))
    buffer = RowBuffer(num_slots, source.width, source.dtype, file=planned.file, memory=memory)
    delegated = WorkerReadSource(server_ends) if planned.delegates else None
    reader = BatchReader(
        delegated or source, planned.planner, buffer, ahead=sizes.ahead * len(samples)
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
    for channel in channels:
        channel.send_values(MessageType.SETUP, values)
        channel.send_file(memory.descriptor)
    rows = BufferClient(
        client_end,
        buffer.rows,
        source if planned.delegates else open_source(planned.values),
        lead=lead,
        reads=planned.delegates,
        server=BufferServer(reader, server_ends, delegated=delegated),
    )
    return BufferHandle(rows=rows, slots=buffer.rows, values=planned.values)


def _join(
    name: str,
    group: Group,
    sample: SampledBatches,
    open_source: OpenSource,
    file: MappedRows | None,
) -> BufferHandle:
    """Send ``sample`` to the first worker, and return access to the buffer that it opens."""
    with ExitStack() as on_error:
        try:
            channel = connect(name)
            on_error.callback(channel.close)
            channel.send_values(MessageType.SETUP, group.local_rank)
            _send_sample(channel, sample)
            with STATUS.waits():
                message = channel.receive()
            if message is None:
                raise ConnectionError("it has ended")
            if "problem" in message.values:
                raise ConfigError(message.values["problem"])
            memory = SharedMemory(channel.receive_file())
        except OSError as error:
            raise PeerLostError(f"lost the first worker of this machine ({error})") from error
        on_error.pop_all()
    settings = message.values
    source = open_source(settings["values"])
    file = file if settings["has_file"] else None
    buffer = RowBuffer(settings["num_slots"], source.width, source.dtype, file=file, memory=memory)
    rows = BufferClient(
        channel, buffer.rows, source, lead=settings["lead"], reads=settings["delegates"]
    )
    return BufferHandle(rows=rows, slots=buffer.rows, values=settings["values"])


#: Fields of a sample that are sent as plain values.
_VALUE_FIELDS = ("num_bytes", "computing_bytes", "device_window")


def _send_sample(channel: Channel, sample: SampledBatches) -> None:
    values = {name: getattr(sample, name) for name in _VALUE_FIELDS}
    channel.send_values(MessageType.SETUP, [len(sample.vertices), values])
    for vertices in sample.vertices:
        channel.send(MessageType.EXPECT, array=vertices)


def _receive_sample(channel: Channel) -> SampledBatches:
    count, values = _receive(channel).values
    vertices = [_receive(channel).array for _ in range(count)]
    return SampledBatches(vertices=vertices, **values)


def _receive(channel: Channel) -> Message:
    message = channel.receive()
    if message is None:
        raise PeerLostError("lost a worker of this machine")
    return message


def merge_samples(samples: Sequence[SampledBatches]) -> SampledBatches:
    """Return all workers' samples as one: batches step by step by local rank, largest sizes."""
    steps = zip_longest(*(sample.vertices for sample in samples))
    return SampledBatches(
        vertices=[vertices for step in steps for vertices in step if vertices is not None],
        num_bytes=max(sample.num_bytes for sample in samples),
        computing_bytes=max(sample.computing_bytes for sample in samples),
        device_window=max(sample.device_window for sample in samples),
        num_workers=len(samples),
    )
