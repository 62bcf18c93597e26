from planner.runs.files import json_lines
from planner.runs.judge import shipped
from planner.trust.sources import describe_source, short_source


def test_every_group_of_shipped_runs_has_a_title_its_kind_and_mostly_a_year():
    groups = {document["group"] for path in shipped() for _, document in json_lines(path)}
    unnamed = {group for group in groups if describe_source(group) == group}
    assert not unnamed, f"rows that planner/trust/sources.csv lacks: {unnamed}"
    assert sum(describe_source(group)[-2].isdigit() for group in groups) > 0.8 * len(groups)


def test_titles_are_cut_not_years_and_unknown_groups_stay():
    assert short_source("maknee-skypilot-network", 60).endswith(" 2025")
    assert len(short_source("maknee-skypilot-network", 24)) <= 24
    assert short_source("maknee-skypilot-network", 24).endswith("... 2025")
    assert describe_source("mine") == short_source("mine", 3) == "mine"
