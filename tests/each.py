"""One test of many rows: for tables of which each row takes no longer than the test around it."""

from inspect import signature


def each(names, rows, *, ids=()):
    """Tries a test on every row, which is a value for each of the names; all rows that fail are told, each by its own.

    For what shares its fixtures; `pytest.mark.parametrize` makes them anew for each row and takes a millisecond for it.
    """
    names = (names,) if isinstance(names, str) else names
    rows, ids = list(rows), list(ids)
    assert rows, "a test of nothing"

    def of_one(test):
        def of_all(**fixtures):
            wrong = []
            for place, row in enumerate(rows):
                try:
                    test(**dict(zip(names, row if len(names) > 1 else (row,), strict=True)), **fixtures)
                except Exception as error:  # noqa: BLE001  the other rows are tried too
                    error.add_note(f"of {ids[place] if ids else row}")
                    wrong.append(error)
            if wrong:
                raise ExceptionGroup(f"{len(wrong)} of {len(rows)} rows", wrong)

        shape = signature(test)
        left = [one for name, one in shape.parameters.items() if name not in names]
        of_all.__signature__ = shape.replace(parameters=left)
        of_all.__name__, of_all.__doc__, of_all.__module__ = test.__name__, test.__doc__, test.__module__
        return of_all

    return of_one
