"""The first thing that runs in a learner's kernel: set limits, take over the sockets, become an IPython kernel.

This file is copied beside the sockets of the run and started as ``python kernel_main.py PLAN -f CONNECTION_FILE``. It
imports nothing of the course, and holds nothing that a learner must not read.

``PLAN`` is JSON: ``{"limits": {"RLIMIT_AS": 4294967296, …}, "sockets": {"ipc:///…/k-1": 7, …}}``. The sockets are
bound by the grader and inherited as file descriptors, so the kernel needs no folder in which it may write.
"""

import json
import resource
import sys


def set_limits(limits: dict[str, int]) -> None:
    """Set each resource limit, soft and hard, to ``limits`` or to what the host allows, whichever is less."""
    for name, value in limits.items():
        which = getattr(resource, name)
        _, hard = resource.getrlimit(which)
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(which, (value, value))


def take_over_sockets(sockets: dict[str, int]) -> None:
    """Make ZeroMQ listen on the inherited descriptor wherever it is told to bind one of these addresses."""
    import zmq

    bind = zmq.Socket.bind

    def bind_or_take_over(self, address):
        if address in sockets:
            self.setsockopt(zmq.USE_FD, sockets.pop(address))
            if not sockets:
                zmq.Socket.bind = bind  # type: ignore[method-assign]
        return bind(self, address)

    zmq.Socket.bind = bind_or_take_over  # type: ignore[method-assign]


def main() -> None:
    plan = json.loads(sys.argv.pop(1))
    del sys.path[0]  # this file's folder; IPython puts the working directory in its place
    set_limits(plan["limits"])
    take_over_sockets(plan["sockets"])
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance(argv=[*sys.argv[1:], "--HistoryManager.enabled=False"])


if __name__ == "__main__":
    main()
