"""Dask arrays that are computed a second time from their source, after something else is done.

Two uses of one array share its chunks. If the second use waits for the whole first use, as a softmax waits
for the rows' states, Dask keeps every chunk in memory meanwhile. `dask.graph_manipulation.bind` is meant for
such uses, but the tasks of layers that are not blockwise stay shared (dask issue 12455).
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

    `arrays` have the same blocks. `states` has one block along axis, and one more dimension at the end. The
    tasks that begin a block need no other task. They wait for the states of the block's rows, so no task
    reads ahead while the states are computed. Chunks that are in memory already, as in a persisted array, are
    not copied.
    """
    # merged, so that tasks that the arrays share stay shared
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
    """These keys and all keys that they depend on."""
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
    if key not in graph:  # a Future of dask.distributed; the graph of `states` has it
        return Alias(names[key], key)
    node = graph[key].substitute(names, key=names[key])
    begins = isinstance(node, Task) and not any(
        isinstance(graph.get(d), Task) for d in graph[key].dependencies
    )
    return Task(names[key], _after, node, *map(TaskRef, sorted(rows))) if begins else node


def _after(made: Any, *rows: Any) -> Any:
    """The result of a task, which has waited for the rows' states."""
    return made
