"""What writes checkpoints while training goes on: one thread, and one write at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gnnscale.runtime.pipeline.stages import running

__all__ = ["BackgroundWriter"]

Job = Callable[[], None]


class BackgroundWriter:
    """Runs one job at a time in a thread of its own, which begins with the first of them.

    There is no queue, so that a disk that is too slow delays writes and does not pile them up. Only
    one job may stand behind the one in flight, and a newer one takes its place.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._job: Job | None = None
        self._behind: Job | None = None
        self._failure: BaseException | None = None
        self._closed = False

    @property
    def idle(self) -> bool:
        """Whether nothing is being written."""
        return self._job is None

    def check(self) -> None:
        """Raise what a job has failed with; it is raised once.

        Raises:
            BaseException: whatever the job raised, such as an OSError of a full disk.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def begin(self, job: Job) -> None:
        """Begin ``job``; nothing may be in flight."""
        self.check()
        if self._thread is None:
            # Before there is a job: where no thread can begin, nobody waits for one.
            thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
            thread.start()
            self._thread = thread
        with self._changed:
            assert self._job is None, "one write at a time"
            self._job = job
            self._changed.notify_all()

    def follow(self, job: Job) -> None:
        """Begin ``job`` behind the one in flight, in place of what was to follow it; or now."""
        with self._changed:
            if self._job is not None:
                self._behind = job
                return
        self.begin(job)

    def wait(self) -> None:
        """Wait until all is written.

        Raises:
            BaseException: whatever a job raised.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._job is None)
        self.check()

    def close(self) -> None:
        """Wait until all is written, and end the thread; whoever fails now does so for a cause."""
        with self._changed:
            self._changed.wait_for(lambda: self._job is None)
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._job is not None or self._closed)
                job = self._job
            if job is None:
                return
            try:
                with running("checkpoint"):
                    job()
            except BaseException as error:  # raised again where the run is trained
                self._failure = error
            del job  # what it was to write is not kept until the next one
            with self._changed:
                # What was to follow a failure would go on from what is not there.
                self._job = None if self._failure is not None else self._behind
                self._behind = None
                self._changed.notify_all()
