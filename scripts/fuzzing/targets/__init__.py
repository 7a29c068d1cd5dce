"""What is fuzzed, by name. Only the module of the target that is meant is imported."""

from importlib import import_module

from ..case import Target

#: Module and class of each target.
_CLASSES = {
    **{"readers": ("readers", "Readers"), "tables": ("readers", "TableFiles")},
    **{"store": ("graphs", "Stores"), "partition": ("plans", "Partitions")},
    **{"cache_plan": ("plans", "CachePlans"), "links": ("graphs", "LinkSplits")},
    **{"preaggregated": ("graphs", "Preaggregated"), "checkpoint": ("runs", "Checkpoints")},
    **{"run": ("runs", "RunDirectories"), "nvlink": ("hardware", "NvlinkMatrices")},
    **{"platform": ("hardware", "Platforms"), "bitstream": ("hardware", "Bitstreams")},
    **{"board": ("designs", "Boards"), "vendor": ("designs", "VendorReports")},
    **{"degrees": ("hardware", "DegreeFiles"), "rows": ("graphs", "RowStores")},
    **{"typed_store": ("typed_graphs", "TypedStores")},
    **{"timed_store": ("timed_graphs", "TimedStores")},
    **{"timed_links": ("timed_graphs", "TimedLinkSplits")},
    **{"typed_readers": ("typed_graphs", "TypedReaders")},
    **{"ops": ("ops", "Ops"), "commands": ("commands", "Commands")},
}
#: Those that can be asked for one part of what they fuzz.
_OF_PARTS = ("readers", "ops")
TARGETS = tuple(_CLASSES)


def target_named(name: str, only: str | None = None) -> Target:
    """Return one of ``TARGETS``, of ``only`` one reader or function, also named after a dash."""
    kind, _, part = name.partition("-")
    module, found = _CLASSES[kind]
    target: type[Target] = getattr(import_module(f"{__name__}.{module}"), found)
    return target(only or part or None) if kind in _OF_PARTS else target()  # type: ignore[call-arg]
