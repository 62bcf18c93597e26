"""Studies: many questions at once, in parallel, never the same one twice.

``running.run(study_file.read_study("study.toml"), "runs.sqlite")`` answers every point of a study that the store does
not hold yet; ``result.results(study, "runs.sqlite")`` reads the answers, point by point.

In: a study file. Out: a store of answers (SQLite), and results by point. Imports: api and below; pyarrow and ray where
asked for.
"""
