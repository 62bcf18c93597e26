"""What the system says of processes."""

import os
import subprocess
from pathlib import Path


def children(pid):
    """Processes that one has started."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in listed.stdout.split()]


def worked(pid):
    """Ticks of a processor, a hundred a second, that a process has had."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


def resident(pid):
    """Bytes of memory that it holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
