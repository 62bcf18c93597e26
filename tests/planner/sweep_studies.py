"""Small studies for the tests of sweeps, and what is compared of their answers."""

import sqlite3

from planner.studies.study_file import read_study, study_of

SMALL = {
    "model": "llama3-8b",
    "gpus": [8, 16],
    "global_batch": 64,
    "cluster": {"fabric": {"bandwidth": ["25 GB/s", "100 GB/s"]}, "price": ["2 $/h", "3 $/h"]},
}
TOML = """
model = "llama3-8b"
gpus = [8, 16]
global_batch = 64
cluster.fabric.bandwidth = ["25 GB/s", "100 GB/s"]
cluster.price = ["2 $/h", "3 $/h"]
"""


def study(**changes):
    return study_of(SMALL | changes)


def written(folder, text=TOML, name="study.toml"):
    path = folder / name
    path.write_text(text)
    return path


def answers(path):
    """Every answer of a store by its key, without how long it took and when."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT key, status, document, error FROM results ORDER BY key").fetchall()
    connection.close()
    return rows


def stamped(path):
    """The same with how long it took and when: what must not change once it is there."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT * FROM results").fetchall()
    connection.close()
    return {row[0]: row for row in rows}


__all__ = ["SMALL", "TOML", "answers", "read_study", "stamped", "study", "written"]
