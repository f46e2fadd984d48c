"""Dask arrays that are computed a second time, from their source, when something else is done.

Two uses of one array share its chunks. Where the second use waits for all of the first, as a softmax for the
rows' states, Dask would keep every chunk in memory meanwhile. `dask.graph_manipulation.bind` is meant for
that, but leaves the tasks of all but blockwise layers as they are (dask issue 12455), shared.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import Any

from dask._task_spec import Alias, GraphNode, Task, TaskRef, convert_legacy_graph
from dask.array import Array
from dask.base import clone_key, tokenize
from dask.highlevelgraph import HighLevelGraph
from dask.utils import ensure_dict


def read_again(arrays: list[Any], states: Any, axis: tuple[int, ...]) -> list[Any]:
    """The same arrays, from tasks of their own.

    `arrays` have the same blocks, and `states` one block along axis, with a dimension behind. The tasks that
    begin a block, those that need no other, wait for the states of its rows: so nobody reads ahead while
    these are computed. What is in memory already, as in a persisted array, is not copied.
    """
    # together, so that what they share stays shared
    all_tasks = HighLevelGraph.merge(*(x.__dask_graph__() for x in arrays))
    optimized = Array.__dask_optimize__(all_tasks, [x.__dask_keys__() for x in arrays])
    graph = convert_legacy_graph(ensure_dict(optimized))
    waits: dict[Any, set[Any]] = defaultdict(set)
    for block in product(*map(range, arrays[0].numblocks)):
        row = (states.name, *(0 if dim in axis else i for dim, i in enumerate(block)), 0)
        for key in _needed(graph, [(x.name, *block) for x in arrays]):
            waits[key].add(row)
    names = {key: _cloned(key, states.name) for key in waits}
    tasks = {names[key]: _renamed(graph, key, names, rows) for key, rows in waits.items()}
    again = []
    for x in arrays:
        name = clone_key(x.name, states.name)
        layers = HighLevelGraph.from_collections(name, tasks, dependencies=[states])
        again.append(Array(layers, name, x.chunks, dtype=x.dtype, meta=x._meta))
    return again


def _needed(graph: dict[Any, GraphNode], keys: list[Any]) -> set[Any]:
    """These keys and all that they depend on."""
    found: set[Any] = set()
    while keys:
        key = keys.pop()
        if key not in found:
            found.add(key)
            keys.extend(graph[key].dependencies if key in graph else ())
    return found


def _cloned(key: Any, seed: str) -> Any:
    named = isinstance(key[0] if isinstance(key, tuple) and key else key, str)
    return clone_key(key if named else f"task-{tokenize(key)}", seed)


def _renamed(graph: dict[Any, GraphNode], key: Any, names: dict[Any, Any], rows: set[Any]) -> GraphNode:
    if key not in graph:  # a Future of dask.distributed, which `states` has in its graph
        return Alias(names[key], key)
    node = graph[key].substitute(names, key=names[key])
    begins = isinstance(node, Task) and not any(
        isinstance(graph.get(d), Task) for d in graph[key].dependencies
    )
    return Task(names[key], _after, node, *map(TaskRef, sorted(rows))) if begins else node


def _after(made: Any, *rows: Any) -> Any:
    """What a task made, which has waited for the rows."""
    return made
