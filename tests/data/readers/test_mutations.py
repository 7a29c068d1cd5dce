import os
from contextlib import suppress

import pytest
from fuzzing.targets.samples import SAMPLES

from gnnscale import data as dataset
from gnnscale.core.errors import ConfigError, GraphError


def attempt(reader):
    """Prepare a store; return the error where there is one, which must be one printable line."""
    try:
        reader.prepare(force=True)
    except (GraphError, ConfigError) as error:
        message = str(error)
        assert message.isprintable()
        assert len(message) < 3000
        return error
    return None


@pytest.fixture(
    params=[each for layout in SAMPLES.values() for each in layout], ids=lambda each: each.layout
)
def sample(request):
    """A tiny valid example of every layout, in turn."""
    return request.param


def write(sample, raw, files):
    for name in sample.files:
        (raw / name).parent.mkdir(parents=True, exist_ok=True)
        (raw / name).unlink(missing_ok=True)
        if name in files:
            (raw / name).write_bytes(files[name])


def reader_of(sample, raw, place):
    layout = getattr(dataset, sample.layout)
    return layout(raw=str(place), store=f"{raw}-{place.name}-store", **sample.options)


@pytest.mark.long
def test_pipes_are_not_waited_for(sample, tmp_path):
    """A pipe in place of any file of any layout: a line, and never a wait for who writes to it."""
    for number, pipe in enumerate(sample.files):
        raw = tmp_path / str(number)
        write(sample, raw, sample.files)
        places = [raw, raw / pipe] if len(sample.files) == 1 else [raw]
        # Some need the file itself, or the folder, or do not read this file.
        made = [reader_of(sample, raw, place) for place in places]
        readable = [each for each in made if attempt(each) is None]
        assert readable
        readers = [each for each in readable if raw / pipe in each.raw_files()]
        (raw / pipe).unlink()
        os.mkfifo(raw / pipe)
        for each in readers:
            with suppress(GraphError, ConfigError):
                each.prepare()  # stores outlive their files
            assert attempt(each) is not None
