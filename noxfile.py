"""Exported plans read by the real frameworks: `nox` runs all sessions, `nox -s torch` one. Environments are nox's own.

Versions are the ones that the exporters are written for. Nothing is skipped: what cannot be installed fails.
"""

import shutil

import nox

nox.options.error_on_missing_interpreters = True
nox.options.sessions = (
    *("torch", "megatron", "torchtitan_toml", "paddle", "maxtext"),
    *("slurm", "kubernetes", "clouds", "service"),
)
"""All but ``transformers``, which builds hundreds of models: run it when a family is added or the library is newer."""
CONFIGURED = ("-c", "tests/conformance/pytest.ini", "--rootdir", ".", "--confcutdir", "tests/conformance")
PYTEST = ("python", "-m", "pytest", *CONFIGURED)
COMMON = ("pytest>=8.2", "pytest-timeout>=2.3", "pyyaml>=6.0")


@nox.session(python="3.11")
def torch(session: nox.Session) -> None:
    """DeepSpeed, torchtitan 0.3, Accelerate, nanotron and torchrun beside one PyTorch."""
    session.install(".", *COMMON, "torch==2.13.0", "einops", "packaging", "numpy")
    session.install("accelerate==1.15.0", "transformers<6", "deepspeed==0.19.8")
    session.install("torchtitan==0.3.0", "triton", "torchao")
    session.install("--no-deps", "--ignore-requires-python", "nanotron==0.4")  # it asks for Python 3.10 alone
    session.install("dacite")
    files = (
        "deepspeed",
        "torchtitan",
        "accelerate",
        "torchrun",
        "pytorch",
        "nanotron",
        "probe",
    )
    for name in files:
        session.run(*PYTEST, f"tests/conformance/test_{name}.py")


@nox.session(python="3.11")
def megatron(session: nox.Session) -> None:
    """Megatron-LM's parser and checks, and Megatron-Core's configurations."""
    session.install(".", *COMMON, "torch==2.13.0", "einops", "packaging", "numpy", "triton")
    session.install("--no-deps", "--ignore-requires-python", "megatron-core==0.19.2")
    for name in ("megatron_lm", "megatron_parameters", "megatron_bridge"):
        session.run(*PYTEST, f"tests/conformance/test_{name}.py")


@nox.session(python="3.11")
def torchtitan_toml(session: nox.Session) -> None:
    """The last torchtitan that reads TOML."""
    session.install(".", *COMMON, "torch==2.13.0", "torchtitan==0.2.2", "triton", "torchao")
    session.run(*PYTEST, "tests/conformance/test_torchtitan_toml.py")


@nox.session(python="3.11")
def transformers(session: nox.Session) -> None:
    """Every family of decoders of Hugging Face's transformers, on the meta device."""
    session.install(".", *COMMON, "torch==2.13.0", "transformers==5.24.0")
    session.run(*PYTEST, "tests/conformance/test_transformers.py")


@nox.session(python="3.11")
def slurm(session: nox.Session) -> None:
    """A controller of Debian's Slurm with nodes that do not exist."""
    if not shutil.which("slurmctld", path="/usr/sbin:/usr/bin"):
        apt = ("apt-get", "install", "-y", "-q", "--no-install-recommends", "slurmctld", "slurm-client")
        session.run("apt-get", "update", "-q", external=True)
        session.run(*apt, external=True)
    session.install(".", *COMMON)
    session.run(*PYTEST, "tests/conformance/test_slurm.py")


@nox.session(python="3.11")
def kubernetes(session: nox.Session) -> None:
    """Published models and schemas of TrainJob, JobSet, Job and Pod."""
    session.install(".", *COMMON, "kubernetes-validate==1.37.0", "kubeflow-trainer-api==2.3.0")
    session.run(*PYTEST, "tests/conformance/test_kubernetes.py")


@nox.session(python="3.11")
def clouds(session: nox.Session) -> None:
    """Ray on a simulated cluster, and SkyPilot's schema."""
    session.install(".", *COMMON, "ray[default]==2.60.0", "skypilot==0.14.1")
    session.run(*PYTEST, "tests/conformance/test_ray.py")
    session.run(*PYTEST, "tests/conformance/test_skypilot.py")


@nox.session(python="3.11")
def paddle(session: nox.Session) -> None:
    """PaddleFormers on PaddlePaddle for CPUs."""
    session.install(".", *COMMON, "paddlepaddle==3.3.1", "paddleformers==1.2.0")
    session.run(*PYTEST, "tests/conformance/test_paddle.py")


@nox.session(python="3.11")
def maxtext(session: nox.Session) -> None:
    """MaxText's configuration on JAX for CPUs; it asks for Python 3.12, which that part of it does not need."""
    session.install(".", *COMMON, "jax==0.10.2", "flax==0.12.8", "orbax-checkpoint==0.12.8")
    session.install("omegaconf", "absl-py", "packaging", "jinja2", "etils", "psutil", "pathwaysutils")
    session.install("--no-deps", "--ignore-requires-python", "maxtext==0.2.5")
    session.run(*PYTEST, "tests/conformance/test_maxtext.py")


@nox.session(venv_backend="none")
def service(session: nox.Session) -> None:
    """The HTTP service under bodies made from its own description; .ci/service alone runs more kinds of them."""
    session.run("bash", ".ci/service", external=True, env={"EXAMPLES": "200", "PHASES": "examples,fuzzing"})
