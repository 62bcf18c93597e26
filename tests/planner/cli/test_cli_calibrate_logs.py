from click.testing import CliRunner

from planner.cli import main

LINE = (
    " iteration {:8d}/     100 | consumed samples: {:12d} | elapsed time per iteration (ms): 361{}.0 |"
    " learning rate: 1.0E-05 | global batch size:   512 | lm loss: 6.1 |\n"
)


def test_a_log_that_says_too_little_asks_for_its_script(tmp_path):
    log = tmp_path / "train.log"
    log.write_text("".join(LINE.format(n, 512 * n, n % 7) for n in range(1, 41)))
    done = CliRunner().invoke(main, ["calibrate", str(log)])
    assert done.exit_code == 2
    assert "--from SCRIPT adds what started it; or give --model, --gpus, --cluster" in done.stderr
    assert done.stderr.count("\n") == 1
