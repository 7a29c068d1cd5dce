"""The one way to start Python: nothing in the working directory is imported."""

import sys

#: ``python -c`` searches modules in the working directory first, until these words are executed:
#: they take the path of the process that starts this one, and import nothing (``sys`` is built in).
_PATH = (
    "import sys; count = int(sys.argv[1]); "
    "sys.path[:] = sys.argv[2 : 2 + count]; del sys.argv[1 : 2 + count]; "
)


def python_command(program: str, *arguments: object) -> list[str]:
    """Return the command that runs ``program``, one line of statements, with this ``sys.path``.

    The program finds ``arguments``, converted to texts, in ``sys.argv[1:]``.
    """
    given = map(str, (len(sys.path), *sys.path, *arguments))
    return [sys.executable, "-c", f"{_PATH}{program}", *given]
