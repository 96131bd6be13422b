"""The sandbox holds: each test is something that a learner's code might try, in a real kernel in real bubblewrap."""

import contextlib
import dataclasses
import fcntl
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient

from autograder import cgroups, enclosure, parent, sandbox
from autograder.enclosure import RunDirectory, Way
from autograder.judge import checked_piece
from autograder.sandbox import Limits, SandboxError
from transformer_lab.cells import SKIP_TAG, read_notebook

BUILTIN = "transformer_lab.builtin"
ROOT = Path(__file__).resolve().parents[2]
SECRET = f"SECRET_{uuid.uuid4().hex}"
LIMITS = Limits(memory_bytes=2 << 30, file_bytes=8 << 20, processes=64)


@pytest.fixture(scope="module", autouse=True)
def _available():
    reason = sandbox.why_unavailable()
    if reason is not None:
        pytest.fail(f"These tests need the sandbox. {reason}", pytrace=False)
    for other in parent._warm.values():  # of other tests in this process; these look for the one that they start
        other.close()
    parent._warm.clear()


@pytest.fixture(scope="module", params=["warm", "fresh"])
def kernel(_available, request):
    """One kernel for the tests that leave nothing behind. Its grader has a secret in the environment and an open file."""
    os.environ["GRADER_SECRET"] = SECRET
    with tempfile.NamedTemporaryFile(prefix=SECRET) as open_file:
        os.set_inheritable(open_file.fileno(), True)
        try:
            with sandbox.start(LIMITS, warm=request.param == "warm") as kernel:
                yield kernel
        finally:
            del os.environ["GRADER_SECRET"]


@pytest.fixture
def unmemorised():
    caches = (enclosure.why_unavailable, enclosure.way_inside, enclosure._trial)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def public_folder():
    """A folder that every user may read, which pytest's are not; the sandbox of a grader that is root may be another's."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def run(kernel, code: str, seconds: float = 60) -> tuple[str, str]:
    """The status of ``code`` and all that it put out, as text."""
    outputs = []

    def keep(message):
        content = message["content"]
        outputs.append(content.get("text") or content.get("data", {}).get("text/plain") or content.get("ename", ""))

    reply = kernel.client.execute_interactive(textwrap.dedent(code), timeout=seconds, output_hook=keep)
    return reply["content"]["status"], "".join(outputs)


def value(kernel, expression: str, before: str = ""):
    """What ``expression`` is in the kernel, after running ``before``; plain data only."""
    status, text = run(kernel, f"import json, os\n{textwrap.dedent(before)}\nprint(json.dumps({expression}))")
    assert status == "ok", text
    return json.loads(text)


def refused(kernel, code: str) -> bool:
    """Whether ``code`` ends in an OSError (no such file, no permission, no space, unreachable, …)."""
    body = textwrap.indent(textwrap.dedent(code), "    ")
    status, text = run(kernel, f"import os\ntry:\n{body}\nexcept OSError:\n    print('no')")
    assert status == "ok", text
    return text == "no\n"


def host_processes(marker: str) -> list[int]:
    """Processes of the whole machine with ``marker`` on the command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue  # it has ended, or is another user's
    return found


def processes_of(kernel) -> list[int]:
    """Processes of the whole machine that are in the process namespace of this kernel."""
    return processes_in(os.readlink(f"/proc/{kernel.manager.provisioner.pid}/ns/pid"))


def processes_in(namespace: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "ns/pid") == namespace:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def eventually(condition, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


#: Starts a process that leaves the kernel's session and process group, and goes on for ever under the name of `marker`.
DAEMON = """
    import os, subprocess, sys, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", "import time\\nwhile True: time.sleep(1)", {marker!r}])
        os._exit(0)
    while not any({marker!r}.encode() in open(f"/proc/{{p}}/cmdline", "rb").read() for p in os.listdir("/proc") if p.isdigit()):
        time.sleep(0.01)
    """


# ------------------------------------------------------------------------------------------------------------ it works


def test_code_runs_and_its_output_comes_back(kernel):
    assert run(kernel, "print('hello')\n6 * 7") == ("ok", "hello\n42")
    assert run(kernel, "raise ValueError('x')") == ("error", "ValueError")


def test_torch_gives_the_same_numbers_as_here(kernel):
    computed = value(
        kernel,
        "(torch.nn.Linear(32, 32)(torch.randn(8, 32)) @ torch.randn(32, 3)).tolist()",
        before="import torch; torch.manual_seed(3)",
    )
    torch.manual_seed(3)
    expected = torch.nn.Linear(32, 32)(torch.randn(8, 32)) @ torch.randn(32, 3)
    torch.testing.assert_close(torch.tensor(computed), expected.detach())


def test_it_works_in_an_empty_folder_of_its_own(kernel):
    assert value(kernel, "[os.getcwd(), os.listdir('.')]") == ["/tmp/work", []]
    assert not refused(kernel, "open('notes.txt', 'w').write('x'); os.remove('notes.txt')")


def test_the_public_package_is_there_and_builds_on_the_builtin_pieces(kernel):
    assert value(kernel, "pieces.earlier('mine')._source", before="from transformer_lab import pieces") == BUILTIN


def test_input_fails_at_once_instead_of_waiting(kernel):
    assert run(kernel, "input()", seconds=10) == ("error", "StdinNotImplementedError")


def test_nbclient_runs_a_notebook_whatever_its_kernelspec(kernel):
    cells = [nbformat.v4.new_code_cell(source) for source in ("print(6 * 7)", "while True: pass", "print('after')")]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": {"name": "no-such", "display_name": "x"}})
    NotebookClient(notebook, km=kernel.manager, timeout=3, interrupt_on_timeout=True, allow_errors=True).execute()
    first, second, third = (cell.outputs for cell in notebook.cells)
    assert [first[0].text, second[0].ename, third[0].text] == ["42\n", "KeyboardInterrupt", "after\n"]
    assert kernel.is_alive()


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("import asyncio\nawait asyncio.sleep(0)\n'waited'", "'waited'"),
        ("async def one():\n    return 1\n\n[await one() for _ in range(2)]", "[1, 1]"),
        ("%%capture caught\nprint('kept back')", ""),
        ("caught.stdout", "'kept back\\n'"),
        ("get_ipython().run_cell('print(5)');", "5\n"),
        ("print('one', end=' ', flush=True)\nprint('two')", "one two\n"),
        ("_dh", "['/tmp/work']"),
        ("import inspect\ndef own(): return 3\nprint(inspect.getsource(own), end='')", "def own(): return 3\n"),
    ],
)
def test_a_cell_does_what_it_does_in_any_notebook(kernel, code, shown):
    assert run(kernel, code) == ("ok", shown)


def test_what_is_written_past_python_is_among_the_outputs(kernel):
    for number in range(30):
        assert run(kernel, f"import os\nos.write(1, b'{number}\\n');") == ("ok", f"{number}\n")


def test_a_changed_transformation_holds_for_the_next_cell_even_if_it_is_the_same(kernel):
    cell = "print('one')"
    assert run(kernel, cell) == ("ok", "one\n")
    change = "ip.input_transformers_cleanup.append(lambda lines: [line.replace('one', 'two') for line in lines])"
    assert run(kernel, f"ip = get_ipython()\n{change}") == ("ok", "")
    try:
        assert run(kernel, cell) == ("ok", "two\n")
    finally:
        assert run(kernel, "ip.input_transformers_cleanup.pop();") == ("ok", "")


def test_an_error_shows_its_line_plainly(kernel):
    run(kernel, "def fails(x):\n    return x / 0\n\ndef calls(x):\n    return fails(x)")
    shown = []
    kernel.client.execute_interactive("y = 1\ncalls(y)", output_hook=lambda message: shown.append(message["content"]))
    (text,) = ("\n".join(content["traceback"]) for content in shown if "traceback" in content)
    assert "\x1b" not in text
    for line in (
        "----> 2 calls(y)",
        "----> 5     return fails(x)",
        "----> 2     return x / 0",
        "ZeroDivisionError: division",
    ):
        assert line in text


# --------------------------------------------------------------------------------------------------------- it is alone


def test_no_network(kernel):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert refused(kernel, f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=5)")
    assert refused(kernel, "import socket; socket.getaddrinfo('example.org', 80)")
    interfaces = value(kernel, "[line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line]")
    assert interfaces == ["lo"]


def test_no_abstract_unix_socket_of_the_host(kernel):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + SECRET)
        listener.listen()
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect({chr(0) + SECRET!r})"
        exec(connect)  # it can be reached from here …
        assert refused(kernel, connect)


@pytest.mark.parametrize(
    "path",
    [ROOT / "solutions", ROOT / "autograder", ROOT / "tests", ROOT / "pyproject.toml", Path.home() / ".profile"]
    + [Path(p) for p in ("/etc/shadow", "/etc/hostname", "/var", "/home", "/boot", "/run", "/mnt", "/sys")],
    ids=str,
)
def test_the_host_is_out_of_sight(kernel, path):
    assert not value(kernel, f"os.path.lexists({str(path)!r})")


def test_the_temporary_files_of_the_host_are_out_of_sight(kernel):
    with tempfile.NamedTemporaryFile(prefix=SECRET, dir="/tmp") as marker:
        assert not value(kernel, f"os.path.exists({marker.name!r})")
    assert SECRET not in json.dumps(value(kernel, "[names for _, *names in os.walk('/tmp')]"))


def test_the_grader_can_not_be_imported(kernel):
    assert run(kernel, "import autograder") == ("error", "ModuleNotFoundError")
    assert run(kernel, "import autograder.sandbox") == ("error", "ModuleNotFoundError")


def test_environment_holds_nothing_of_the_grader(kernel):
    assert os.environ["GRADER_SECRET"] == SECRET
    seen = value(
        kernel,
        "''.join(open(f'/proc/{p}/{name}', errors='replace').read() for p in pids for name in ('environ', 'cmdline'))",
        before="pids = [p for p in os.listdir('/proc') if p.isdigit()]",
    )
    assert "kernel_main.py" in seen
    assert SECRET not in seen
    assert str(os.getpid()) not in value(kernel, "dict(os.environ)").values()
    known = set(enclosure.environment(home="", temporary="", course=""))
    added_by_jupyter = {"CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "GIT_PAGER", "MPLBACKEND", "PAGER", "PWD", "TERM"}
    added_by_jupyter |= {"PYDEVD_USE_FRAME_EVAL", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "TORCHINDUCTOR_CACHE_DIR"}
    assert set(value(kernel, "list(os.environ)")) <= known | added_by_jupyter


def test_only_its_own_processes_are_visible(kernel):
    names = value(kernel, "[open(f'/proc/{p}/comm').read().strip() for p in os.listdir('/proc') if p.isdigit()]")
    assert len(names) == 2  # the kernel, and the first process of its namespace
    assert refused(kernel, f"os.kill({os.getpid()}, 0)")


def test_no_open_file_of_the_grader_is_inherited(kernel):
    links = value(
        kernel,
        "[os.readlink(f) for f in files if os.path.islink(f)]",
        before="import glob; files = glob.glob('/proc/[0-9]*/fd/*')",
    )
    opened = {link for link in links if link.startswith("/") and not link.startswith(("/dev/", "/proc/"))}
    assert opened == {"/memfd:stderr (deleted)"}


def test_it_is_nobody_and_may_nothing(kernel):
    assert value(kernel, "[os.getuid(), os.getgid(), os.getgroups()]")[:2] == [1000, 1000]
    status = value(kernel, "dict(line.split(':', 1) for line in open('/proc/self/status'))")
    assert {status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"].strip() == "1"
    assert value(kernel, "socket.gethostname()", before="import socket") == "sandbox"
    passwd = value(kernel, "open('/etc/passwd').read()").splitlines()
    assert [line.split(":")[0] for line in passwd] == ["root", "learner"]


#: Leaves a trace wherever processes could meet, under a name that the other learner knows.
TRACES = """
    import ctypes, os, pty, socket, subprocess, sys
    libc = ctypes.CDLL(None)
    name = {name!r}
    for folder in ("/tmp", "/tmp/work", "/tmp/home", "/dev/shm"):
        open(f"{{folder}}/{{name}}", "w").write(name)
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", name])
    terminal = pty.openpty()
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(chr(0) + name)
    abstract.listen()
    listener = socket.create_server(("127.0.0.1", 45678))
    assert libc.shmget(4711, 4096, 0o1666) >= 0 and libc.msgget(4711, 0o1666) >= 0
    """

#: What can be seen of such traces; a list of words.
SEEN = """
    import ctypes, glob, os, socket
    libc = ctypes.CDLL(None)
    name, seen = {name!r}, []
    seen += glob.glob(f"/tmp/**/{{name}}", recursive=True) + glob.glob(f"/dev/shm/{{name}}")
    seen += [p for p in os.listdir("/proc") if p.isdigit() and name in open(f"/proc/{{p}}/cmdline").read()]
    seen += [t for t in os.listdir("/dev/pts") if t != "ptmx"]
    for family, address in ((socket.AF_UNIX, chr(0) + name), (socket.AF_INET, ("127.0.0.1", 45678))):
        try:
            socket.socket(family).connect(address)
            seen.append(str(address))
        except OSError:
            pass
    seen += ["shared memory"] if libc.shmget(4711, 1, 0) >= 0 else []
    seen += ["message queue"] if libc.msgget(4711, 0) >= 0 else []
    """


def test_two_learners_of_one_warm_parent_see_nothing_of_each_other():
    with sandbox.start(LIMITS) as one, sandbox.start(LIMITS) as two:
        assert len({id(p) for p in parent._warm.values() if p.is_alive()}) == 1
        assert run(one, TRACES.format(name=SECRET))[0] == "ok"
        assert value(two, "seen", SEEN.format(name=SECRET)) == []
        assert len(value(one, "seen", SEEN.format(name=SECRET))) == 10  # the first one sees all of it
        assert len(value(two, "[p for p in os.listdir('/proc') if p.isdigit()]")) == 2
        assert not value(two, f"os.path.exists({str(one.manager.run_directory.path)!r})")
        for kind in ("user", "pid", "mnt", "ipc", "net", "uts"):
            link = f"/proc/self/ns/{kind}"
            assert (
                len({value(one, f"os.readlink({link!r})"), value(two, f"os.readlink({link!r})"), os.readlink(link)})
                == 3
            )
        # Nor does one come to see what the other leaves behind, nor is it touched by the other's end.
        one.kill()
        with sandbox.start(LIMITS) as three:
            assert value(three, "seen", SEEN.format(name=SECRET)) == []
        assert run(two, "1 + 1") == ("ok", "2")


def test_what_one_learner_does_to_modules_is_not_met_by_the_next():
    with sandbox.start(LIMITS) as one:
        assert run(one, "import torch, sys; torch.softmax = None; sys.modules['json'] = None") == ("ok", "")
    with sandbox.start(LIMITS) as two:
        assert value(two, "callable(torch.softmax)", "import torch") is True


def test_the_warm_parent_holds_no_secret_and_has_computed_nothing():
    with sandbox.start(LIMITS) as kernel:
        key = kernel.manager.session.key
        (warm,) = (p for p in parent._warm.values() if p.is_alive())
        forking = [p for p in processes_in(os.readlink(f"/proc/{_inside(warm)}/ns/pid"))]
        assert len(forking) == 2  # bwrap's first process and the parent itself
        number = max(forking)
        status = dict(line.split(":", 1) for line in Path(f"/proc/{number}/status").read_text().splitlines())
        assert status["Threads"].strip() == "1"
        assert status["Uid"].split() == [str(65534 if os.geteuid() == 0 else os.geteuid())] * 4
        assert {status[name].strip() for name in ("CapPrm", "CapEff")} == {"0" * 16}
        assert any(key in memory_of(p) for p in processes_of(kernel))
        memory = memory_of(number)
        assert b"transformer_lab" in memory  # it is the right memory
        assert key not in memory
        assert SECRET.encode() not in memory


@pytest.mark.parametrize(("needed", "ready"), [("no_such_module", False), ("json", True)])
def test_a_parent_needs_some_modules_and_does_without_others(needed, ready):
    with contextlib.closing(
        parent.Parent(enclosure.way_inside(), (), LIMITS.file_bytes, needed=[needed], preload=["no_other_module"])
    ) as made:
        said = select.select([made._control], [], [], 60)[0] and made._control.recv(16)
        assert said == (b"ready" if ready else b"")
        if not ready:
            with pytest.raises(SandboxError, match=r"while it started.*No module named 'no_such_module'"):
                made.start({}, parent.memory_file("stderr"), [], 30)


def test_another_process_can_borrow_the_warm_parent_as_long_as_it_lives():
    with sandbox.start(LIMITS):
        (warm,) = (p for p in parent._warm.values() if p.is_alive())
        lent = warm.lend()
        borrowed = parent.Borrowed(dataclasses.replace(lent, control=lent.control.dup()))
    try:
        assert borrowed.fits(warm.way, ())
        assert not borrowed.fits(warm.way, (ROOT / "tests",))
        parent._borrowed[:] = [borrowed]
        with sandbox.start(LIMITS) as kernel:
            assert run(kernel, "1 + 1") == ("ok", "2")
            assert parent.warm(warm.way, (), 1) is borrowed
            warm.close()
            assert eventually(lambda: not kernel.is_alive())
        assert eventually(lambda: not borrowed.is_alive())
        with sandbox.start(LIMITS) as kernel:  # from one of its own
            assert run(kernel, "1 + 1") == ("ok", "2")
    finally:
        parent._borrowed.clear()


def _inside(warm) -> int:
    return parent._number_of(warm._first)


def memory_of(process: int) -> bytes:
    """What a process has written to its memory."""
    found = []
    with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb", 0) as memory:
        for line in maps:
            words = line.split()
            if words[1].startswith("rw"):
                start, end = (int(number, 16) for number in words[0].split("-"))
                memory.seek(start)
                try:
                    found.append(memory.read(end - start))
                except OSError:
                    continue
    return b"".join(found)


def test_loading_ahead_computes_nothing():
    program = f"""
        import sys, torch
        from torch.utils._python_dispatch import TorchDispatchMode
        class Recorder(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                print(function)
                return function(*args, **(kwargs or {{}}))
        with Recorder():
            for name in {parent.PRELOAD!r}:
                name, _, function = name.partition(":")
                __import__(name)
                if function:
                    getattr(sys.modules[name], function)()
            sys.path.insert(0, {str(enclosure.KERNEL_APP.parent)!r})
            import kernel_app
            kernel_app.App.instance().prepare()
        import os
        assert len(os.listdir("/proc/self/task")) == 1
        assert not [f for f in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{{f}}") and "socket" in
                    os.readlink(f"/proc/self/fd/{{f}}")]
        """
    environment = enclosure.environment(home="/tmp", temporary="/tmp", course=str(ROOT))
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("chapter", sorted(path.stem for path in (ROOT / "solutions").glob("*.md")))
def test_what_a_notebook_of_the_course_imports_is_loaded_ahead(chapter):
    """What each kernel of a class would have to import costs a class of hundreds minutes."""
    cells = [cell for cell in read_notebook(ROOT / f"solutions/{chapter}.md").cells if cell.cell_type == "code"]
    sources = [
        cell.source
        for cell in cells
        if SKIP_TAG not in (cell.metadata.get("tags") or []) and checked_piece(cell) is None
    ]
    with sandbox.start(LIMITS) as kernel:
        before = set(value(kernel, "list(sys.modules)", before="import sys"))
        assert [output for source in sources if (output := run(kernel, source))[0] != "ok"] == []
        new = set(value(kernel, "list(sys.modules)")) - before
    assert len(new) <= 3, sorted(new)


# ------------------------------------------------------------------------------------------------- it changes nothing


@pytest.mark.parametrize(
    "folder",
    ["/", "/usr", "/usr/lib", "/etc", "/dev", "/course", "/course/transformer_lab", sys.prefix, sys.base_prefix]
    + [str(Path(file).parent) for file in (torch.__file__, sys.executable)],
)
def test_nothing_outside_of_tmp_is_writable(kernel, folder):
    assert refused(kernel, f"open(os.path.join({folder!r}, 'x'), 'w')")


def test_the_folder_of_the_sockets_is_out_of_sight(kernel):
    assert not value(kernel, f"os.path.exists({str(kernel.manager.run_directory.path)!r})")
    python = [Path(sys.prefix).parts[2]] if Path(sys.prefix).is_relative_to("/tmp") else []  # a clone that lies there
    assert value(kernel, "sorted(os.listdir('/tmp'))") == sorted(
        ["connection.json", "home", "ipython", "work", *python]
    )


def test_no_file_system_but_the_private_ones_is_mounted_writable(kernel):
    mounts = [line.split() for line in value(kernel, "open('/proc/self/mounts').read()").splitlines()]
    writable = {where for _, where, _, options, *_ in mounts if "rw" in options.split(",")}
    writable -= (
        {"/proc"}
        if value(kernel, "open('/proc/self/mounts').read().split('proc /proc proc ')[-1][:2]") == "ro"
        else set()
    )
    devices = {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "pts", "console")}
    assert {"/tmp", "/dev/shm"} <= writable <= {"/tmp", "/dev/shm"} | devices


def test_no_setting_of_the_host_is_writable(kernel):
    for setting in ("kernel/core_pattern", "kernel/hostname", "vm/swappiness"):
        assert refused(kernel, f"open('/proc/sys/{setting}', 'r+')"), setting


def test_no_further_user_namespace(kernel):
    unshare = "import ctypes; raise SystemExit(-ctypes.CDLL(None).unshare(0x10000000))"  # CLONE_NEWUSER; 1 if refused
    assert subprocess.run([sys.executable, "-c", unshare]).returncode == 0  # it can be done here …
    code = f"import subprocess, sys; status = subprocess.run([sys.executable, '-c', {unshare!r}]).returncode"
    assert value(kernel, "status", before=code) == 1


# ---------------------------------------------------------------------------------------------------------- it is bounded


def test_memory_is_bounded(kernel):
    assert run(kernel, f"block = bytearray({LIMITS.memory_bytes})") == ("error", "MemoryError")
    assert run(kernel, f"import torch; torch.ones({LIMITS.memory_bytes}, dtype=torch.uint8)")[0] == "error"
    assert kernel.is_alive()


def test_a_file_is_bounded_and_all_files_together(kernel):
    block = 1 << 20
    for folder in ("/tmp", "/dev/shm"):
        fill = f"""
            import glob
            for i in range(100):
                with open(f'{folder}/fill{{i}}', 'wb') as f:
                    f.write(bytes({block}))
            """
        assert refused(kernel, fill)
        assert value(kernel, f"sum(os.path.getsize(f) for f in glob.glob('{folder}/fill*'))") <= LIMITS.file_bytes
        run(kernel, f"for f in glob.glob('{folder}/fill*'): os.remove(f)")
    assert refused(kernel, f"os.truncate(os.memfd_create('x'), {LIMITS.file_bytes + 1})")


def test_many_small_files_are_bounded(kernel):
    if not enclosure.way_inside().inner:
        pytest.skip("bubblewrap alone can't bound their number; their memory counts where there are control groups")
    code = """
        import glob, os
        os.makedirs("/tmp/many", exist_ok=True)
        made = 0
        try:
            for made in range(30_000):
                open(f"/tmp/many/{made}", "w").close()
        except OSError:
            pass
        """
    assert value(kernel, "made", code) < 20_000
    run(kernel, "import shutil; shutil.rmtree('/tmp/many')")


#: Four processes, each well within what one of them may have.
MEMORY_TOGETHER = """
    import os, time
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            block = bytearray(b"x") * (300 << 20)
            time.sleep(30)
            os._exit(0)
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children[:1]]
    """


def test_memory_of_all_processes_together_is_bounded_or_the_host_says_that_it_is_not():
    with sandbox.start(Limits(memory_bytes=1 << 30)) as kernel:
        if sandbox.unenforced_limits():
            assert any("several processes together" in sentence for sentence in sandbox.unenforced_limits())
            return
        assert not kernel.out_of_memory()
        kernel.client.execute(textwrap.dedent(MEMORY_TOGETHER))
        assert eventually(kernel.out_of_memory, 20)
        assert kernel.peak_bytes() <= 1 << 30
        folders = kernel.manager.group._folders()
        assert all(folder.is_dir() for folder in folders)
    assert kernel.out_of_memory()
    assert not any(folder.exists() for folder in folders)


def test_processes_are_bounded_or_the_host_says_that_they_are_not(kernel):
    try:
        bounded = refused(
            kernel,
            f"""
            import subprocess
            children = []
            for _ in range({LIMITS.processes}):
                children.append(subprocess.Popen(["sleep", "60"]))
            """,
        )
    finally:
        run(kernel, "for child in children: child.kill(); child.wait()")
    assert bounded != any("number of processes" in sentence for sentence in sandbox.unenforced_limits())


def test_limits_are_set_and_can_not_be_lifted(kernel):
    before = "import resource as r"
    names = ("RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_CORE", "RLIMIT_CPU")
    limits = value(kernel, f"[r.getrlimit(getattr(r, name)) for name in {names}]", before)
    assert LIMITS.memory_bytes // 8 * 7 <= limits[0][0] < LIMITS.memory_bytes + (2 << 30)
    expected = [limits[0][0], LIMITS.file_bytes, 0, LIMITS.notebook_seconds + 1]
    assert limits == [[number, number] for number in expected]
    status, text = run(kernel, "r.setrlimit(r.RLIMIT_AS, (r.RLIM_INFINITY, r.RLIM_INFINITY))")
    assert (status, text) == ("error", "ValueError")


# ----------------------------------------------------------------------------------------------------------------- it ends


def test_an_endless_loop_can_be_interrupted(kernel):
    # a kernel drops what waits behind a cell that failed: not here, where something is asked at once
    started = kernel.client.execute("while True: pass", stop_on_error=False)
    time.sleep(0.3)
    kernel.interrupt()
    begun = time.monotonic()
    while True:
        reply = kernel.client.get_shell_msg(timeout=10)
        if reply["parent_header"]["msg_id"] == started:
            break
    assert reply["content"]["ename"] == "KeyboardInterrupt"
    assert time.monotonic() - begun < 10
    assert run(kernel, "1 + 1") == ("ok", "2")


def test_kill_ends_all_even_what_hides_and_ignores_signals():
    marker = f"daemon-{uuid.uuid4().hex}"
    with sandbox.start(LIMITS) as kernel:
        run_folder = kernel.manager.run_directory.path
        assert run(kernel, DAEMON.format(marker=marker))[0] == "ok"
        assert host_processes(marker)
        namespace = os.readlink(f"/proc/{kernel.manager.provisioner.pid}/ns/pid")
        assert len(processes_in(namespace)) >= 3
        run(
            kernel,
            "import signal\nfor s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)",
        )
        kernel.client.execute("while True: pass")
        time.sleep(0.3)
        kernel.interrupt()
        time.sleep(0.3)
        assert kernel.is_alive()
        begun = time.monotonic()
        kernel.kill()
        assert time.monotonic() - begun < 5
        assert not kernel.is_alive()
        kernel.interrupt()
        assert host_processes(marker) == []  # at once, not eventually
        assert eventually(lambda: processes_in(namespace) == [])  # but for what a parent still asks for: how it ended
    assert not run_folder.exists()
    kernel.close()


def test_a_kernel_that_ends_itself_takes_its_processes_along():
    marker = f"daemon-{uuid.uuid4().hex}"
    with sandbox.start(LIMITS) as kernel:
        assert run(kernel, DAEMON.format(marker=marker))[0] == "ok"
        kernel.client.execute("import os; os._exit(0)")
        assert eventually(lambda: not kernel.is_alive())
        run_folder = kernel.manager.run_directory.path
    assert host_processes(marker) == []
    assert not run_folder.exists()


def test_the_death_of_the_grader_ends_its_kernels():
    marker = f"daemon-{uuid.uuid4().hex}"
    program = f"""
        import sys, time, types
        autograder = sys.modules["autograder"] = types.ModuleType("autograder")
        autograder.__path__ = [{str(Path(sandbox.__file__).parent)!r}]  # the package without its checks, hence without torch
        from autograder import sandbox
        kernel = sandbox.start()
        reply = kernel.client.execute_interactive({textwrap.dedent(DAEMON.format(marker=marker))!r}, timeout=60)
        assert reply["content"]["status"] == "ok"
        print(kernel.manager.run_directory.path, flush=True)
        time.sleep(600)
        """
    grader = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True)
    try:
        run_folder = Path(grader.stdout.readline().strip())
        assert run_folder.is_dir()
        assert host_processes(marker)
    finally:
        grader.kill()
        grader.wait()
        grader.stdout.close()
    assert eventually(lambda: not host_processes(marker))
    # Nobody was left to remove the folder; the next grader does.
    os.utime(run_folder, (0, 0))
    enclosure._remove_stale.cache_clear()
    RunDirectory().remove()
    assert not run_folder.exists()


def test_folders_of_running_graders_are_left_alone():
    run_folder = RunDirectory()
    os.utime(run_folder.path, (0, 0))
    enclosure._remove_stale.cache_clear()
    RunDirectory().remove()
    assert run_folder.path.is_dir()
    lock = os.open(run_folder.path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(lock)
    run_folder.remove()
    assert not run_folder.path.exists()


# ------------------------------------------------------------------------------------------------- what is hidden, and without


def test_the_course_is_hidden_inside_of_what_is_seen_but_not_the_environment_inside_of_it(monkeypatch, public_folder):
    """As with a checkout in /usr/src/course that holds its own .venv."""
    system, course = public_folder / "system", public_folder / "system" / "course"
    for folder in (course / "solutions", course / ".venv" / "lib", system / "lib"):
        folder.mkdir(parents=True)
    links, binds = enclosure._system()
    seen = {str(folder): str(folder) for folder in (course / ".venv", system)}
    monkeypatch.setattr(enclosure, "_system", lambda: (links, binds | seen))
    with sandbox.start(LIMITS, hidden=[course]) as kernel:
        assert value(kernel, f"sorted(os.listdir({str(system)!r}))") == ["course", "lib"]
        assert value(kernel, f"os.listdir({str(course)!r})") == [".venv"]
        assert value(kernel, f"os.listdir({str(course / '.venv')!r})") == ["lib"]
        assert refused(kernel, f"open({str(course / 'x')!r}, 'w')")
        monkeypatch.chdir(course)  # the working directory is hidden without being named
        assert str(course) in enclosure._mounts(kernel.manager.run_directory.path, ())[0]


def test_the_course_must_not_be_a_folder_that_the_sandbox_shows():
    with pytest.raises(SandboxError, match="move one of the two"):
        sandbox.start(LIMITS, hidden=[Path(sys.prefix)])


@pytest.mark.parametrize(
    ("checkout", "hides"), [(True, "site/"), (False, "site/autograder")], ids=["checkout", "installed"]
)
def test_the_grader_is_hidden_where_it_is_installed(monkeypatch, tmp_path, checkout, hides):
    package = tmp_path / "site" / "autograder"
    package.mkdir(parents=True)
    if checkout:
        (tmp_path / "site" / "pyproject.toml").touch()
    monkeypatch.setattr(enclosure, "__file__", str(package / "enclosure.py"))
    assert enclosure._course_folders() == [tmp_path / hides]


@pytest.mark.usefixtures("unmemorised")
def test_without_the_sandbox_it_is_the_same_kernel_in_a_folder_of_its_own(monkeypatch):
    monkeypatch.setenv("GRADER_SECRET", SECRET)
    monkeypatch.setenv("PATH", "/nonexistent")  # bubblewrap is not needed
    with sandbox.start(LIMITS, sandboxed=False) as kernel:
        run_folder = kernel.manager.run_directory.path
        assert value(kernel, "[os.getcwd(), os.listdir('.')]") == [str(run_folder / "work"), []]
        assert SECRET not in value(kernel, "dict(os.environ)").values()
        assert value(kernel, "transformer_lab.__file__", "import transformer_lab").startswith(str(run_folder))
        assert run(kernel, f"block = bytearray({LIMITS.memory_bytes})") == ("error", "MemoryError")
        kernel.client.execute("while True: pass")
        kernel.kill()
        assert not kernel.is_alive()
    assert not run_folder.exists()
    assert not host_processes(run_folder.name)


# -------------------------------------------------------------------------------------------------------- what it says


def test_a_kernel_that_can_not_start_says_why(monkeypatch, public_folder):
    monkeypatch.setattr(tempfile, "tempdir", str(public_folder))
    with pytest.raises(SandboxError, match=r"died while it started\. Its last words: .*(emory|map|thread|unavailable)"):
        sandbox.start(Limits(memory_bytes=30 << 20))
    with pytest.raises(SandboxError, match=r"no answer in 0\.01 seconds"):
        sandbox.start(startup_seconds=0.01)
    mine = {path for path in public_folder.iterdir() if path.name.startswith(enclosure._RUN_PREFIX)}
    assert len(mine) == 1  # the warm parent's, which stays
    for warm in [p for key, p in parent._warm.items() if str(public_folder) in key]:
        warm.close()
    assert list(public_folder.iterdir()) == []


@pytest.mark.parametrize("ending", ["del kernel", "pass"], ids=["collected", "at exit"])
def test_a_forgotten_kernel_is_closed(ending):
    program = f"""
        import gc, os, sys, types
        autograder = sys.modules["autograder"] = types.ModuleType("autograder")
        autograder.__path__ = [{str(Path(sandbox.__file__).parent)!r}]
        from autograder import sandbox
        kernel = sandbox.start()
        print(kernel.manager.run_directory.path, flush=True)
        if os.fork() == 0:
            sys.exit()  # an ordinary end of a forked worker
        os.wait()
        assert kernel.is_alive()
        {ending}
        gc.collect()
        print("collected")
        """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    run_folder, said = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert said == "collected"
    assert not Path(run_folder).exists()
    assert not host_processes(Path(run_folder).name)


def test_where_inner_namespaces_are_forbidden_each_kernel_has_a_bubblewrap_of_its_own(monkeypatch):
    monkeypatch.setattr(enclosure, "way_inside", lambda: Way(inner=False))
    marker = f"daemon-{uuid.uuid4().hex}"
    with sandbox.start(LIMITS) as kernel:
        assert run(kernel, DAEMON.format(marker=marker))[0] == "ok"
        names = value(kernel, "[open(f'/proc/{p}/comm').read().strip() for p in os.listdir('/proc') if p.isdigit()]")
        assert names[0] == "bwrap"
        for folder in ("/", "/usr", "/proc/sys", "/dev", "/course"):
            assert refused(kernel, f"open(os.path.join({folder!r}, 'x'), 'w')")
        assert refused(kernel, "open('/proc/sys/kernel/core_pattern', 'r+')")
        status = value(kernel, "dict(line.split(':', 1) for line in open('/proc/self/status'))")
        assert {status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
        assert host_processes(marker)
    assert host_processes(marker) == []


# ---------------------------------------------------------------------------------------------------- what comes out of it

#: What a hostile kernel sends where a message is expected; `session` signs it with the right key.
NO_MESSAGES = {
    "nothing": [],
    "no delimiter": [b"x"] * 5,
    "no signature": [b"<IDS|MSG>", b"", b"{}", b"{}", b"{}", b"{}"],
    "a wrong signature": [b"<IDS|MSG>", b"0" * 64, b"{}", b"{}", b"{}", b"{}"],
}
NO_PARTS = {
    "no JSON": b"{",
    "a list": b"[]",
    "a number": b"1",
    "no text": b"\xff\xfe",
    "a deep one": b'{"a":' * 400 + b"1" + b"}" * 400,
    "a bottomless one": b"[" * 100_000,
    "an identity that is none": b'{"msg_id": ["x"], "msg_type": {}}',
    "a large number": b'{"a": ' + b"9" * 5000 + b"}",
}


def _read(session, frames: list[bytes]) -> dict:
    _, frames = session.feed_identities(frames)
    return session.deserialize(frames)


@pytest.mark.parametrize("frames", NO_MESSAGES.values(), ids=NO_MESSAGES)
def test_what_is_no_message_is_passed_over(frames):
    assert _read(sandbox._Session(key=b"key"), frames)["parent_header"] == {}


@pytest.mark.parametrize("part", NO_PARTS.values(), ids=NO_PARTS)
@pytest.mark.parametrize("place", range(4), ids=["header", "parent header", "metadata", "content"])
def test_what_is_no_part_of_a_message_is_passed_over(part, place):
    if place > 1 and b"msg_id" in part:
        return  # metadata and content may have what keys they like
    session = sandbox._Session(key=b"key")
    parts = [b'{"msg_id": "1", "msg_type": "status"}', b'{"msg_id": "mine"}', b"{}", b"{}"]
    assert _read(session, [b"<IDS|MSG>", session.sign(parts), *parts])["parent_header"]["msg_id"] == "mine"
    parts[place] = part
    message = _read(session, [b"<IDS|MSG>", session.sign(parts), *parts])
    assert message["parent_header"] == {}
    assert message["content"] == {}


def test_a_line_beyond_all_bounds_is_cut_where_it_is_printed(kernel):
    before = peak_of_this_process()
    status, text = run(kernel, "print('x' * 60_000_000)")
    assert status == "ok"
    assert 1_000_000 < len(text) < 5_000_000
    assert "left out" in text
    status, text = run(kernel, "'x' * 60_000_000")
    assert (status, "left out" in text) == ("ok", True)
    assert run(kernel, "print('x' * 900_000)") == ("ok", "x" * 900_000 + "\n")
    assert peak_of_this_process() - before < 100 << 20


def test_a_message_beyond_all_bounds_is_never_received():
    """From a kernel that goes round all that is in it: such a message ends the connection, not the grader's memory."""
    with sandbox.start(LIMITS) as kernel:
        before = peak_of_this_process()
        request = kernel.client.execute("get_ipython().kernel.iopub_socket.send(b'x' * 400_000_000)")
        assert kernel.client._recv_reply(request, timeout=30)["content"]["status"] in ("ok", "error")
        time.sleep(0.5)
        assert peak_of_this_process() - before < 100 << 20


def peak_of_this_process() -> int:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) << 10


# ------------------------------------------------------------------------------------------------------- control groups

VERSION_2 = ("0::/user.slice/app.slice/a.scope\n", "30 1 0:1 / {0} rw - cgroup2 cgroup2 rw,nsdelegate\n")
VERSION_1 = (
    "4:memory:/box\n8:pids:/\n0::/\n",
    "30 1 0:1 / {0}/memory rw - cgroup cgroup rw,memory\n31 1 0:2 / {0}/pids rw - cgroup cgroup rw,pids\n",
)


def test_control_groups_of_version_2_are_made_where_controllers_are_handed_down(tmp_path):
    groups, mounts = VERSION_2
    around = tmp_path / "user.slice/app.slice"
    (around / "a.scope").mkdir(parents=True)
    (around / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (around / "a.scope/cgroup.subtree_control").write_text("\n")
    assert cgroups._candidates(groups, mounts.format(tmp_path)) == [cgroups.Place(around, around, unified=True)]


def test_control_groups_of_version_1_are_made_below_the_own_ones(tmp_path):
    groups, mounts = VERSION_1
    expected = cgroups.Place(tmp_path / "memory/box", tmp_path / "pids", unified=False)
    assert cgroups._candidates(groups, mounts.format(tmp_path)) == [expected]


@pytest.mark.parametrize("unified", [True, False], ids=["version 2", "version 1"])
def test_a_control_group_says_what_it_bounds_and_what_happened(tmp_path, unified, monkeypatch):
    """In a folder that stands for the system's: what is written where."""
    for folder in ("m", "p"):
        (tmp_path / folder).mkdir()
    place = cgroups.Place(tmp_path / "m", tmp_path / ("m" if unified else "p"), unified)
    made = cgroups.Path.mkdir

    def mkdir(self):  # as the system does, with files in it
        made(self)
        for name in ("memory.swap.max", "memory.oom.group", "memory.memsw.limit_in_bytes"):
            (self / name).touch()

    monkeypatch.setattr(cgroups.Path, "mkdir", mkdir)
    group = cgroups.Group(place, 1000, 7)
    group.add(4711)
    (memory,) = (tmp_path / "m").iterdir()
    (pids,) = place.pids.iterdir()
    written = {
        file.name: file.read_text() for folder in (memory, pids) for file in folder.iterdir() if file.read_text()
    }
    if unified:
        bounds = {"memory.max": "1000", "memory.swap.max": "0", "memory.oom.group": "1"}
        told = memory / "memory.events"
    else:
        bounds = {"memory.limit_in_bytes": "1000", "memory.memsw.limit_in_bytes": "1000"}
        told = memory / "memory.oom_control"
    assert written == bounds | {"pids.max": "7", "cgroup.procs": "4711"}
    assert not group.out_of_memory()
    told.write_text("oom 3\noom_kill 2\n")
    assert group.out_of_memory()


# ----------------------------------------------------------------------------------------------------------- what is asked


class TestRequire:
    def test_all_holds(self, monkeypatch):
        monkeypatch.setattr(sandbox, "unenforced_limits", list)
        sandbox.require()

    def test_what_does_not_hold_is_refused_unless_accepted(self, monkeypatch):
        monkeypatch.setattr(cgroups, "place", lambda: None)
        monkeypatch.delenv(sandbox.ACCEPT, raising=False)
        with pytest.raises(SandboxError, match=r"several processes together.*--accept-unenforced"):
            sandbox.require()
        sandbox.require(accept_unenforced=True)
        monkeypatch.setenv(sandbox.ACCEPT, "1")
        sandbox.require()

    def test_no_sandbox_is_refused_whatever_is_accepted(self, monkeypatch):
        monkeypatch.setattr(sandbox, "why_unavailable", lambda: "bubblewrap is not installed.")
        with pytest.raises(SandboxError, match="not installed"):
            sandbox.require(accept_unenforced=True)


@pytest.mark.usefixtures("unmemorised")
class TestWhyUnavailable:
    def test_without_bubblewrap(self, monkeypatch):
        monkeypatch.setenv("PATH", "/nonexistent")
        assert "apt-get install bubblewrap" in sandbox.why_unavailable()
        with pytest.raises(SandboxError, match="apt-get install bubblewrap"):
            sandbox.start()

    def test_with_an_old_bubblewrap(self, monkeypatch):
        monkeypatch.setattr(enclosure, "_bwrap_version", lambda: (0, 6))
        assert "0.6 is too old" in sandbox.why_unavailable()

    def test_off_linux(self, monkeypatch):
        monkeypatch.setattr(sys, "platform", "darwin")
        assert "needs Linux" in sandbox.why_unavailable()

    @pytest.mark.parametrize(
        ("settings", "complaint", "advice"),
        [
            (
                {"kernel/apparmor_restrict_unprivileged_userns": "1"},
                "setting up uid map: Permission denied",
                "AppArmor",
            ),
            ({"kernel/unprivileged_userns_clone": "0"}, "No permissions", "kernel.unprivileged_userns_clone to 1"),
            ({"user/max_user_namespaces": "0"}, "Creating new namespace failed", "user.max_user_namespaces"),
            ({}, "No permissions to create new namespace", "seccomp=unconfined"),
            ({}, "Can't mount proc on /newroot/proc: Operation not permitted", "systempaths=unconfined"),
            ({}, "execvp python: No such file or directory", "can't start Python"),
        ],
    )
    def test_with_a_bubblewrap_that_fails(self, monkeypatch, tmp_path, settings, complaint, advice):
        """A bubblewrap that fails as it does on such a host."""
        fake = tmp_path / "bwrap"
        fake.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap 0.8.0 && exit\necho "bwrap: {complaint}" >&2\nexit 1\n'
        )
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr(enclosure, "_sysctl", settings.get)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        reason = sandbox.why_unavailable()
        assert advice in reason
        assert complaint in reason

    def test_as_it_is_here(self):
        assert sandbox.why_unavailable() is None


def test_what_the_host_can_not_enforce_is_said_in_sentences():
    for sentence in sandbox.unenforced_limits():
        assert sentence.endswith(".")
        assert "not" in sentence
