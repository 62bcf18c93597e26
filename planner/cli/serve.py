"""The command that answers over HTTP: serve."""

from __future__ import annotations

import socket
from typing import Any

import click

from planner.cli.command import Command, option
from planner.cli.ending import UNEXPECTED, say
from planner.cli.values import Count, quantity, read_as
from planner.errors import BadRequest
from planner.processes import forget_interrupts

_L = "Limits"


@click.command("serve", cls=Command, short_help="A page for the browser, and answers over HTTP.")
@option("--host", heading="Address", default="127.0.0.1", help="Where to listen (default: 127.0.0.1).")
@option("--port", heading="Address", type=Count(least=0, most=65_535), default=8642, help="Port (default: 8642).")
@option("--allow-host", heading="Address", multiple=True, help="Further name that clients use for it.")
@option("--workers", heading=_L, type=Count(), default=2, help="Questions at once (default: 2).")
@option("--waiting", heading=_L, type=Count(least=0), default=16, help="Questions that may wait (default: 16).")
@option(
    "--time-limit",
    heading=_L,
    type=read_as("time"),
    default="30s",
    metavar="TIME",
    help="Longest search (default: 30s).",
)
@option("--body", heading=_L, type=Count(), default=2**20, help="Longest body in bytes (default: 1 MiB).")
@option(
    "--memory",
    heading=_L,
    type=quantity("bytes", zero=True),
    default="4 GiB",
    metavar="SIZE",
    help="Of one worker (default: 4 GiB).",
)
def serve(host: str, port: int, allow_host: tuple[str, ...], **limits: Any) -> None:
    """Show a page with a form at /, and answer POST /v1/plan, predict, why-not, export, read and more.

    Bodies are JSON as `plan schema request` says, /docs describes all. No file of this machine is read for a client;
    there is no authentication: listen on other addresses only behind something that has it. SIGTERM lets questions end.
    """
    from planner.service.pool import LOCAL, Settings

    try:
        import uvicorn

        from planner.service.app import create_app
        from planner.service.connections import BACKLOG, Connection
    except ImportError:
        raise BadRequest("plan serve needs FastAPI and uvicorn: pip install fastapi uvicorn") from None
    settings = Settings(
        workers=limits["workers"],
        waiting=limits["waiting"],
        seconds=limits["time_limit"],
        body_bytes=limits["body"],
        memory_bytes=round(limits["memory"]),
        hosts=(*LOCAL, host, *allow_host),
    )
    listening = _bound(host, port)
    config = uvicorn.Config(
        create_app(settings),
        log_level="warning",
        timeout_graceful_shutdown=round(settings.seconds + settings.grace),
        server_header=False,
        http=Connection,
        backlog=BACKLOG,
    )
    say(f"listening on http://{host}:{listening.getsockname()[1]}")
    server = uvicorn.Server(config)
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:  # how a signal ends a server that has finished its work
        pass
    except SystemExit:  # uvicorn's code is that of what is proved infeasible
        if not server.should_exit:
            say("the service did not start; the lines above say why")
            raise click.exceptions.Exit(UNEXPECTED) from None
    finally:
        listening.close()
    forget_interrupts()


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadRequest(f"--port: cannot listen on {host}:{port}: {reason}") from None
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it: answers are not held back
    return listening
