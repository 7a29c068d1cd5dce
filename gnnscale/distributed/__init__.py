"""Process group of a run: collectives between its workers, heartbeats and messages."""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names

if TYPE_CHECKING:
    from gnnscale.distributed.channel import Channel, Message, MessageType
    from gnnscale.distributed.heartbeat import STATUS, TRAINS, activity
    from gnnscale.distributed.process_group import *  # noqa: F403
    from gnnscale.distributed.sockets import PeerLostError, peer_lost_error, record_failure

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.distributed.channel": "Channel Message MessageType",
        "gnnscale.distributed.heartbeat": "STATUS TRAINS activity",
        "gnnscale.distributed.process_group": "Group SINGLE_PROCESS all_gather_object hang_up join",
        "gnnscale.distributed.sockets": "PeerLostError peer_lost_error record_failure",
    },
)
