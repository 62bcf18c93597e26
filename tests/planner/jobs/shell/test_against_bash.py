"""Scripts that are drawn from the grammar start the same in bash, whose programs only record their words."""

import random
import shutil
import subprocess

import pytest

from planner.jobs.shell import read_script
from planner.jobs.shell.script import expand

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")

RECORDING = r"""
torchrun() { printf '%s\0' "$@"; printf '\2\0'; }
for script in "$@"; do printf '\1\0'; ( eval "$script" ) 2>/dev/null; done
"""


def in_bash(scripts: list[str]) -> list[list[list[str]]]:
    """The words of every launch of every script, by one process of bash."""
    done = subprocess.run(["bash", "-c", RECORDING, "bash", *scripts], capture_output=True, text=True, check=False)
    return [[launch.split("\0")[:-1] for launch in one.split("\2\0")[:-1]] for one in done.stdout.split("\1\0")[1:]]


def as_read(script: str) -> list[list[str]]:
    return [list(one.words[1:]) for one in read_script(script).launches]


class Draw:
    """Draws scripts: every variable is set before it is used, and every loop ends."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - the same at every run

    def one(self, *ways):
        return self.random.choice(ways)

    def word(self) -> str:
        return self.one("--tp", "8", "a b", "x/y.json", "--lr=1e-4", "", "7", "a.b.c", "Llama-3", "0", "12", "é")

    def name(self) -> str:
        return self.one("a", "b", "c")

    def expansion(self) -> str:
        name, word = self.name(), self.one("x", "8", "a b", "")
        return self.one(
            f"${name}", f"${{{name}}}", f"${{{name}:-{word}}}", f"${{unset_name:-{word}}}", f"${{{name}:+{word}}}",
            f"${{#{name}}}", f"${{{name}%.*}}", f"${{{name}%%.*}}", f"${{{name}##*/}}", f"${{{name}#*-}}",
            f"${{{name}/a/Z}}", f"${{{name}//./_}}", f"${{{name}:1}}", f"${{{name}:0:2}}", f"${{{name}: -2}}",
            f"${{{name}^^}}", f"${{{name},,}}", "$(( n * 2 + m ))", "$((n%3))", f"$(echo ${name})",
            "$(basename a/b.txt .txt)", "$(seq 1 3)", f"$(echo ${name} | wc -w)", "${L[1]}", "${#L[@]}", "${M[k]}",
            "${!ref}", "`echo hi`", "$((1<<n))", "$(( n > m ? n : m ))", "${L[*]}", "${L[@]:1:2}", "${L[n%3]}",
        )  # fmt: skip

    def argument(self) -> str:
        inner = self.expansion()
        return self.one(
            inner, f'"{inner}"', f'--opt="{inner}"', f"--opt={inner}", f'"x {inner} y"', "'single $a'", '"${L[@]}"',
            "${L[@]}", "{1..3}", "x{a,b}y", r"a\ b", '"esc \\" q"', "$'t\\tb'", f'"{inner}"{inner}', '"${L[@]/#/-}"',
            f"pre{inner}/post", '"${L[@]}"x', "$a/$b.out", "\\\n  next",
        )  # fmt: skip

    def condition(self) -> str:
        left, right = self.name(), self.word()
        return self.one(
            f'[ "${left}" = "{right}" ]', f'[[ ${left} == "{right}" ]]', f"[[ ${left} == *a* ]]", f'[ -z "${left}" ]',
            f'[ -n "${left}" -a "$n" -gt 2 ]', "[ $n -lt $m ]", "(( n > m ))", f'test "${left}" != x',
            f"[[ ! (${left} == 8 || $n -ge 3) ]]", f"[[ ${left} =~ ^[0-9]+$ ]]", f'! [ "${left}" ]', "[[ -v a ]]",
            f'[[ ${left} == *"a"* ]]', f'[[ ${left} != "x"*n || ${left} == *"{right}"*z ]]',
            f'[[ "x${left}" =~ ^x"a"+ ]]',
        )  # fmt: skip

    def block(self, depth: int) -> str:
        return "\n".join(self.statement(depth - 1) for _ in range(self.random.randint(1, 2)))

    def statement(self, depth: int = 2) -> str:
        name, other = self.name(), self.name()
        simple = [
            f"{name}={self.argument_value()}", f'{name}+=" {self.word()}"', f"{name}=${other}$n", "n=$((n+1))",
            "((m+=2))", "let n=n+m", f'L+=("{self.word()}" y)', f"L[1]={self.word() and 'q'}", "M[k]=v$n", "ref=b",
            f"export {name}", f'read -r {name} {other} <<< "p q r"', f'IFS=, read -ra L <<< "1,2,{self.word()}"',
            f"set -- x '{self.word()}' z; {name}=$2; shift; {other}=$#", f'printf -v {name} "%s-%d" v "$n"',
            f"{name}=$(cat <<EOF\nn is $n\nEOF\n)", f'eval "{name}=e$n"', f"unset {name}; {name}=again",
            f"[ $n -gt 2 ] && {name}=big || {name}=small", f"f {self.argument()}",
        ]  # fmt: skip
        if depth <= 0:
            return self.random.choice(simple)
        return self.one(
            *simple,
            f"if {self.condition()}; then\n{self.block(depth)}\nelse\n{self.block(depth)}\nfi",
            f"if {self.condition()}; then {self.block(depth)}\nelif {self.condition()}; then\n{self.block(depth)}\nfi",
            f"case ${name} in\n a*|8) {self.block(depth)};;\n *'.'*|'q'*) {self.block(depth)} ;;\n *) {name}=1\nesac",
            f"for {name} in {self.argument()} z; do\n{self.block(depth)}\ndone",
            f"for ((i=0; i<2; i++)); do {self.block(depth)}\n{name}=$i\ndone",
            f"k=0; while [ $k -lt 2 ]; do k=$((k+1)); {self.block(depth)}\ndone",
            f"( {self.block(depth)}\n)",
            f"torchrun train.py {self.argument()}",
        )

    def argument_value(self) -> str:
        inner = self.expansion()
        return self.one(inner, f'"{inner}"', f'"{self.word()}"', f"'{self.word()}'", f"x{inner}", f'"{inner} {inner}"')

    def script(self) -> str:
        start = "a=8; b='x/y.json'; c=\"a b\"; n=2; m=3; ref=a; L=(p 'q r' s); declare -A M=([k]=v [j]='w x')\n"
        start += 'f() { local a=$1; b="$b:$a$#"; c=${2:-$c}; }\n'
        body = "\n".join(self.statement() for _ in range(self.random.randint(2, 6)))
        words = " \\\n  ".join(self.argument() for _ in range(self.random.randint(1, 4)))
        return f"{start}{body}\ntorchrun train.py {words}\n"


def test_drawn_scripts_start_what_bash_starts():
    scripts = [Draw(seed).script() for seed in range(60)]
    for script, expected in zip(scripts, in_bash(scripts), strict=True):
        assert as_read(script) == expected, script


def test_bash_expands_a_script_with_recorders_for_programs(tmp_path):
    text = f"""
    export A=1 PATH=/usr/bin:/bin:$PATH
    touch {tmp_path}/one
    /usr/bin/touch {tmp_path}/two; B="x y" "/usr/bin/touch" {tmp_path}/four
    C=(/usr/bin/touch {tmp_path}/five); "${{C[@]}}"; P=/usr/bin; D='a b' $P/touch {tmp_path}/six
    exec_() {{ touch {tmp_path}/three; }}; exec_
    mkdir -p out; echo "{{}}" > out/ds.json
    N=$(printf 'a\\nb\\n' | wc -l)
    srun -N 2 bash -c "torchrun --nnodes $N train.py --x '1 2'" 2>&1 | tee log &
    wait
    """
    (launch,) = expand(text).launches
    assert launch.words == ("torchrun", "--nnodes", "2", "train.py", "--x", "1 2")
    assert launch.outer == (("srun", "-N", "2"),)
    assert launch.environment["A"] == "1"
    assert list(tmp_path.iterdir()) == []
