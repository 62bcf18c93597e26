"""What an answer shows of itself to a person at a prompt or in a notebook, a module for each way.

In: the record of an answer. Out: three lines (``headlines``), a card in HTML (``card``), the screen's text
(``summary``), data frames (``frames``), figures (``charts``). Methods of `planner.answer.plan.Answer` call these by
name, so that an answer that nobody looks at loads none. Imports: as render; pandas, polars, matplotlib and plotly
where they are called for.
"""
