"""A Slurm controller on this machine with nodes that do not exist."""

import getpass
import os
import subprocess
import time
from contextlib import contextmanager

TOOLS = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
CONFIGURATION = """\
ClusterName=plan
SlurmctldHost=localhost(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmctldPort={port}
SlurmdPort={beyond}
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
EnforcePartLimits=ALL
PrivateData=cloud
SlurmdTimeout=0
ReturnToService=2
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=60
ResumeTimeout=600
NodeName=gpu[001-128] CPUs=192 SocketsPerBoard=2 CoresPerSocket=96 RealMemory=2000000 Gres=gpu:h100:8 State=CLOUD
PartitionName=train Nodes=ALL Default=YES MaxTime=7-00:00:00 State=UP
"""


def tool(name, *arguments):
    """One of Slurm's commands: its result, stdout and stderr as text."""
    return subprocess.run([name, *arguments], env=TOOLS, capture_output=True, text=True, check=False, timeout=60)


@contextmanager
def controller(folder, *, port=26817):
    """The controller, as long as the block runs."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    written = CONFIGURATION.format(user=getpass.getuser(), folder=folder, port=port, beyond=port + 1)
    (folder / "slurm.conf").write_text(written)
    (folder / "gres.conf").write_text("")
    TOOLS["SLURM_CONF"] = str(folder / "slurm.conf")
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    daemon = subprocess.Popen(["slurmctld", "-i", "-D"], env=TOOLS, **silent)
    try:
        _wait(folder)
        yield
    finally:
        daemon.terminate()
        daemon.wait(timeout=30)


def _wait(folder):
    for _ in range(150):
        if tool("scontrol", "ping").stdout.find("UP") >= 0:
            return
        time.sleep(0.2)
    log = folder / "slurmctld.log"
    raise RuntimeError(f"slurmctld did not start: {log.read_text()[-2000:] if log.exists() else 'no log'}")
