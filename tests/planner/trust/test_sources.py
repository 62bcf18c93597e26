import csv

from refresh_measured import sources

from planner.trust.sources import FILE, describe_source, short_source


def test_every_group_of_shipped_runs_says_its_title_its_kind_and_mostly_a_year():
    text = FILE.read_text(encoding="utf-8")
    assert text == sources(), "scripts/refresh_measured.py writes planner/trust/sources.csv"
    rows = list(csv.DictReader(text.splitlines()))
    assert all(row["title"] and row["kind"] for row in rows)
    assert sum(bool(row["date"]) for row in rows) > 0.8 * len(rows)


def test_titles_are_cut_not_years_and_unknown_groups_stay():
    assert short_source("maknee-skypilot-network", 60).endswith(" 2025")
    assert len(short_source("maknee-skypilot-network", 24)) <= 24
    assert short_source("maknee-skypilot-network", 24).endswith("... 2025")
    assert describe_source("mine") == short_source("mine", 3) == "mine"
