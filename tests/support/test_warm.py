"""A child of the warm interpreter leaves behind what a new interpreter does."""

from __future__ import annotations

import os

import pytest

from tests.support.cli import environment, python
from tests.support.warm import starts_alike

PROGRAMS = {
    "streams": "import sys; print('out', *sys.argv[1:]); print('err', file=sys.stderr); print(repr(sys.stdin.read()))",
    "place": "import os; print(os.getcwd(), __name__, os.environ['COLUMNS'], os.environ['OWN'], 'TERM' in os.environ)",
    "encoding": "import sys; print(sys.stdout.encoding, sys.stderr.errors, sys.stdout.isatty(), 'µ')",
    "code": "raise SystemExit(7)",
    "words": "import sys; sys.exit('a reason')",
    "cleaning up": "import atexit; atexit.register(print, 'last'); print('first')",
    "signal": "import os, signal; print('lost'); os.kill(os.getpid(), signal.SIGTERM)",
    "fault": "1 / 0",
    "closed": "import os; os.close(1); print('x' * 10)",
    "interrupt": "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)",
    "path": "import sys; print(sys.path)",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fork_ends_as_a_new_interpreter_does(name, tmp_path):
    """Of a traceback the last line: in a fork the first place is the server's."""
    warm, new = (
        python(PROGRAMS[name], "a", "b c", cwd=tmp_path, env={"COLUMNS": "71", "OWN": "x"}, fresh=fresh) for fresh in (False, True)
    )
    assert (warm.code, warm.stdout) == (new.code, new.stdout)
    assert warm.stderr.splitlines()[-1:] == new.stderr.splitlines()[-1:]


def test_both_streams_may_go_to_one():
    code = "import sys; print('out'); print('err', file=sys.stderr)"
    warm, new = (python(code, merged=True, fresh=fresh) for fresh in (False, True))
    assert warm == new
    assert sorted(warm.stdout.split()) == ["err", "out"]


def test_children_know_nothing_of_each_other():
    python("import calc, os; calc.mark = 1; os.environ['OWN'] = 'x'; os.chdir('/')")
    assert (
        python("import calc, os; print(hasattr(calc, 'mark'), 'OWN' in os.environ, os.getcwd() == '/')").stdout
        == "False False False\n"
    )


def test_what_an_interpreter_reads_when_it_starts_asks_for_a_new_one():
    assert starts_alike(environment(), environment(COLUMNS="9", ROOFCAST_HOME=os.devnull))
    for changed in ({"PYTHONPATH": "/elsewhere"}, {"PYTHONUTF8": "0"}, {"LC_ALL": "POSIX"}, {"LANG": "de_DE"}):
        assert not starts_alike(environment(), environment(**changed))
    assert python("import sys; print(sys.flags.optimize)", env={"PYTHONOPTIMIZE": "1"}).stdout == "1\n"
