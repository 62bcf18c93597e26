"""Commands that run another command: what they are given, and where the other one begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from planner.jobs.shell.values import is_known


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How a command that runs another one takes its words.

    Attributes:
        flags: options without a value; all others have one in the same word or the next.
        valued: options with a value, where all others have none.
        pairs: options with two values.
        words: of its own in front of the other command, such as an image.
        under: what must come first, such as "run".
        environment: options whose value sets a variable.
    """

    flags: frozenset[str] | None = None
    valued: frozenset[str] = frozenset()
    pairs: frozenset[str] = frozenset()
    words: int = 0
    under: tuple[str, ...] = ()
    environment: frozenset[str] = frozenset()


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SLURM = Wrapper(flags=_set(
    "-l --label --exclusive -u --unbuffered --overlap --kill-on-bad-exit -K -Q --quiet -v -vv --verbose -E "
    "--preserve-env -O --overcommit -s --oversubscribe -k --no-kill --pty --container-writable --container-mount-home "
    "--no-container-mount-home --container-remap-root --no-container-remap-root --no-container-entrypoint "
    "--contiguous -H --hold -X --disable-status --multi-prog --requeue --no-requeue --parsable -W --wait --spread-job "
    "--use-min-nodes --container-readonly --exact --whole --immediate -I --external-launcher",
))  # fmt: skip
_MPI = Wrapper(
    flags=_set(
        "--allow-run-as-root -allow-run-as-root --oversubscribe -oversubscribe --tag-output -tag-output "
        "--report-bindings -report-bindings --display-map -display-map --display-allocation --merge-stderr-to-stdout "
        "--timestamp-output -timestamp-output -v -q --verbose -genvall -envall -l -prepend-rank --nooversubscribe "
        "--bycore --bynode --noprefix --get-stack-traces --do-not-launch --debug-devel -d --disable-cache"
    ),
    pairs=_set("-mca --mca -genv -env --gmca -gmca"), environment=_set("-x"),
)  # fmt: skip
_DOCKER_VALUED = _set(
    "-e --env -v --volume -w --workdir --name --gpus --shm-size --network --net --ipc --ulimit -u --user --entrypoint "
    "--mount --runtime --device -p --publish -h --hostname --cap-add --security-opt --memory -m --cpus --env-file "
    "--pid --log-driver --log-opt -l --label --add-host --group-add --device-cgroup-rule --uts --platform --pull "
    "--cpuset-cpus --cpuset-mems --tmpfs --restart --memory-swap --dns --userns --cgroupns --oom-score-adj --cidfile",
)
_CONTAINER_VALUED = _set(
    "-B --bind --env --pwd --home -H --overlay --workdir -W --env-file --scratch -S --contain-all --app --hostname "
    "--mount --network --security --dns --fusemount --nvccli-path",
)
_RAY_VALUED = _set(
    "--address --runtime-env --runtime-env-json --working-dir --submission-id --job-id --entrypoint-num-cpus --headers "
    "--entrypoint-num-gpus --entrypoint-memory --entrypoint-resources --metadata-json --log-style --log-color",
)
_PLAIN = Wrapper(valued=frozenset())


def _under(*words: str, valued: str = "", own: int = 0, environment: str = "") -> Wrapper:
    """What a word of a program does, where only named options have values."""
    return Wrapper(valued=_set(valued), words=own, under=words, environment=_set(environment))


def _containers(valued: frozenset[str], environment: str) -> tuple[Wrapper, ...]:
    return tuple(
        Wrapper(valued=valued, words=1, under=(one,), environment=_set(environment)) for one in ("run", "exec")
    )


WRAPPERS: Final[dict[str, tuple[Wrapper, ...]]] = {
    **dict.fromkeys(("nohup", "setsid", "unbuffer", "catchsegv", "coproc", "xvfb-run"), (_PLAIN,)),
    **dict.fromkeys(("srun", "sbatch", "salloc"), (_SLURM,)),
    **dict.fromkeys(("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "horovodrun", "prun"), (_MPI,)),
    **dict.fromkeys(("docker", "podman"), _containers(_DOCKER_VALUED, "-e --env")),
    **dict.fromkeys(("singularity", "apptainer"), _containers(_CONTAINER_VALUED, "--env")),
    **dict.fromkeys(("conda", "mamba", "micromamba"), (_under("run", valued="-n --name -p --prefix --cwd"),)),
    **dict.fromkeys(("poetry", "pipenv", "pdm"), (_under("run"),)),
    **dict.fromkeys(("jsrun", "aprun", "dlprof"), (Wrapper(flags=frozenset()),)),
    "time": (_under(valued="-f -o"),), "stdbuf": (_under(valued="-i -o -e"),), "nice": (_under(valued="-n"),),
    "ionice": (_under(valued="-c -n -p"),), "sudo": (_under(valued="-u -g -h -p -C"),),
    "env": (_under(valued="-u --unset -C --chdir -S"),), "taskset": (_under(own=1),), "chrt": (_under(own=1),),
    "timeout": (_under(valued="-k -s --signal --kill-after", own=1),),
    "numactl": (Wrapper(flags=_set("--show --hardware -s -H --localalloc -l --all -a")),),
    "nsys": tuple(Wrapper(flags=frozenset(), under=(one,)) for one in ("profile", "launch")),
    "screen": (_under(valued="-S -dmS -L -Logfile"),),
    "ncu": (Wrapper(flags=_set("-f --force-overwrite --nvtx")),),
    "rocprof": (Wrapper(flags=_set("--stats --hip-trace --hsa-trace --sys-trace")),),
    "flux": (Wrapper(flags=_set("--exclusive -x"), under=("run",)),),
    "enroot": (_under("start", valued="-e --env -m --mount -c --conf", own=1, environment="-e --env"),),
    "kubectl": (_under("exec", valued="-n --namespace -c --container", own=1),),
    "uv": (_under("run", valued="--with --extra --group --python -p --env-file --project --directory"),),
    "pixi": (_under("run", valued="-e --environment"),),
    "ray": (Wrapper(valued=_RAY_VALUED, under=("job", "submit")),),
}  # fmt: skip
"""Commands that run another one, each in the forms that do."""
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_ASSIGNING: Final = frozenset({"env", "sudo"})


def unwrapped(words: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]] | None:
    """The command inside another one and the variables that are set for it; None where there is none."""
    for wrapper in WRAPPERS.get(PurePath(words[0]).name, ()):
        under = len(wrapper.under)
        if tuple(words[1 : 1 + under]) == wrapper.under:
            return _inside(wrapper, list(words[1 + under :]), assigning=PurePath(words[0]).name in _ASSIGNING)
    return None


def _inside(wrapper: Wrapper, rest: list[str], *, assigning: bool) -> tuple[tuple[str, ...], dict[str, str]]:
    """What follows a wrapper's options, assignments and own words, and the variables that these set."""
    environment: dict[str, str] = {}
    while rest and rest[0] != "--":
        word = rest[0]
        if word.startswith("-") and len(word) > 1:
            name, equals, value = word.partition("=")
            if name in wrapper.environment:
                _note(environment, value if equals else "".join(rest[1:2]))
            rest = rest[1 + _values(wrapper, word) :]
        elif len(word) == 1 and not is_known(word):
            rest.pop(0)  # options that are not known
        elif assigning and _ASSIGNMENT.fullmatch(word):
            _note(environment, rest.pop(0))
        else:
            break
    rest = rest[(rest[:1] == ["--"]) + wrapper.words :]
    return tuple(rest[int(bool(wrapper.words) and rest[:1] == ["--"]) :]), environment


def _values(wrapper: Wrapper, word: str) -> int:
    """Words that an option has for values."""
    if "=" in word:
        return 0
    if word in wrapper.pairs:
        return 2
    if wrapper.flags is not None:
        attached = re.fullmatch(r"-[A-Za-z][\d.]+\w*", word) is not None
        return 0 if word in wrapper.flags or attached else 1
    return 1 if word in wrapper.valued else 0


def _note(environment: dict[str, str], text: str) -> None:
    name, equals, value = text.partition("=")
    if equals and name.isidentifier():
        environment[name] = value
