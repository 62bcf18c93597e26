"""How strongly should constants be drawn towards neutral? Errors of fits without each source, by the pull.

    python benchmarks/left_out.py [PULL...]

Dense runs that constants are fitted to, along the slopes at the shipped constants, so that a fit takes a second. A
minute for all five. Printed for every pull: the error of runs that were fitted to, and of the same runs under
constants fitted to all other sources (mean over groups of the median). Then the second by source.
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
from numpy.typing import NDArray

from planner.runs import judge
from planner.runs.fit import by_experts, layout_of, linear, linearized, samples
from planner.runs.least_squares import PRIOR, solve
from planner.runs.leave_one_out import shipped
from planner.trust.table import LEFT_OUT, source

PULLS = (0.01, 0.02, PRIOR, 0.05, 0.1)


def medians(errors: NDArray[np.float64], groups: NDArray[np.str_]) -> dict[str, float]:
    """Median size of the errors of every group."""
    return {str(name): float(np.median(abs(np.expm1(errors[groups == name])))) for name in np.unique(groups)}


def main() -> None:
    """Print the table."""
    chosen = samples(judge.shipped(), LEFT_OUT)
    dense, _ = by_experts(chosen)
    layout = layout_of(dense)
    knobs, values = [knob for _, knob in layout], shipped(layout)
    here, slopes = linearized(dense, layout, values)
    straight = partial(linear, here - slopes @ values, slopes)
    groups, squares = np.array([s.group for s in dense]), np.array([s.weight**2 for s in dense])
    sources = np.array([source(name) for name in groups])
    for pull in map(float, sys.argv[1:] or PULLS):
        inside = straight(solve(straight, knobs, values, weights=squares, prior=pull))
        outside = np.empty(len(dense))
        for name in np.unique(sources):
            mine = sources == name
            outside[mine] = straight(solve(straight, knobs, values, weights=squares * ~mine, prior=pull))[mine]
        fitted, left = medians(inside, groups), medians(outside, groups)
        means = np.mean(list(fitted.values())), np.mean(list(left.values()))
        print("pull {:g}: fitted {:.2%}, left out {:.2%}".format(pull, *means))
        print("  " + ", ".join(f"{name} {size:.1%}" for name, size in left.items()))


if __name__ == "__main__":
    main()
