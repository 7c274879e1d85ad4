"""Which new thing takes which old place: the assignment problem, for as few rows as there are bases."""

from __future__ import annotations

import math
from collections.abc import Sequence


def cheapest_assignment(cost: Sequence[Sequence[float]]) -> list[int]:
    """The column of each row of a square matrix, each column once, with the smallest sum of costs.

    The Hungarian algorithm with potentials: rows enter one at a time, each by a shortest augmenting path.
    """
    size = len(cost)
    of_row, of_column = [0.0] * size, [0.0] * size
    row_of = [-1] * (size + 1)  # by column; the last is where a row begins that has none yet
    for row in range(size):
        row_of[size], column = row, size
        nearest, came_from, done = [math.inf] * size, [size] * size, [False] * (size + 1)
        while row_of[column] >= 0:
            done[column], here = True, row_of[column]
            for other in (one for one in range(size) if not done[one]):
                reduced = cost[here][other] - of_row[here] - of_column[other]
                if reduced < nearest[other]:
                    nearest[other], came_from[other] = reduced, column
            following = min((one for one in range(size) if not done[one]), key=nearest.__getitem__)
            step = nearest[following]
            for other in range(size):
                if done[other]:
                    of_row[row_of[other]] += step
                    of_column[other] -= step
                else:
                    nearest[other] -= step
            of_row[row] += step
            column = following
        while column != size:
            row_of[column] = row_of[came_from[column]]
            column = came_from[column]
    columns = [0] * size
    for column, row in enumerate(row_of[:size]):
        columns[row] = column
    return columns
