"""A submit filter: reads a job script on stdin, writes it to stdout, or refuses it with a line on stderr.

A script says what it trains in comments, as it says its resources to the scheduler; a script that says nothing passes
as it is. ::

    #SBATCH --nodes=8 --gpus-per-node=8
    #PLAN --model llama3-70b --cluster dgx-h100 --global-batch 1024

The filter asks the planner about the GPUs that the script wants. What cannot fit is refused before it waits in a queue,
with the nearest that works; what fits gets the degrees as variables behind its first line. Exit codes: 0 passed, 2 the
question is wrong, 3 nothing fits, 4 no time; any but 0 makes schedulers that know submit filters refuse the job.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

PLAN = (sys.executable, "-m", "planner")
SECONDS = 20


def asked(script: str) -> list[str]:
    """The words of all #PLAN lines."""
    return [word for line in re.findall(r"^#PLAN\s+(.*)$", script, re.MULTILINE) for word in shlex.split(line)]


def gpus(script: str) -> int | None:
    """GPUs that the #SBATCH lines ask for."""
    lines = "\n".join(re.findall(r"^#SBATCH.*$", script, re.MULTILINE))
    wanted = dict(re.findall(r"--(nodes|gpus-per-node|gpus)[= ](\d+)", lines))
    if "gpus" in wanted:
        return int(wanted["gpus"])
    return int(wanted["nodes"]) * int(wanted["gpus-per-node"]) if {"nodes", "gpus-per-node"} <= set(wanted) else None


def main() -> int:
    """Filter stdin to stdout."""
    script = sys.stdin.read()
    words, count = asked(script), gpus(script)
    if not words:
        sys.stdout.write(script)
        return 0
    given = [] if "--gpus" in words or count is None else ["--gpus", str(count)]
    command = [*PLAN, *words, *given, "--format", "env", "--no-reasons", "--time-limit", str(SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr)
        return done.returncode
    first, _, rest = script.partition("\n")
    settings = "".join(f"export {line}\n" for line in done.stdout.splitlines())
    sys.stdout.write(f"{first}\n{rest}" if not first.startswith("#!") else f"{first}\n{_behind(rest, settings)}")
    return 0


def _behind(rest: str, settings: str) -> str:
    """The settings behind the leading comments, where the scheduler still reads its own."""
    lines = rest.splitlines(keepends=True)
    head = next((place for place, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    return "".join([*lines[:head], settings, *lines[head:]])


if __name__ == "__main__":
    sys.exit(main())
