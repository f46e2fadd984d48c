"""plan: the cost of each method, where auto changes, the expected time, and the measurements behind a
choice."""

from __future__ import annotations

import itertools
import json
import math
import os
import re

import numpy as np
import pytest
from support import METHODS, ROOT

import onsoftmax as ons
from onsoftmax import _core, _plan
from onsoftmax._plan import copy_speed as _copy_speed

RESULTS = os.path.join(ROOT, "benchmarks", "results")
DEVICES = ["cpu", "cuda"]


def in_shape(rows, N, form):
    return ((rows, N), -1) if form == "row" else ((N, rows), 0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_others_are_the_plans_of_every_method(device, dtype):
    for shape in [(3, 100), (2048, 5000), (7, 300000)]:
        plan = ons.plan(shape, dtype=dtype, device=device)
        assert [cost.method for cost in plan.others] == [m.name for m in ons.methods(device)]
        for cost in plan.others:
            try:
                other = ons.plan(shape, dtype=dtype, device=device, method=cost.method)
            except ValueError as error:
                assert cost.bytes_moved is None and cost.cannot and cost.cannot in str(error)
                continue
            assert (cost.bytes_moved, cost.on_chip_bytes) == (other.bytes_moved, other.on_chip_bytes)
            assert cost.cannot == ""
        (own,) = (cost for cost in plan.others if cost.method == plan.method)
        assert own.bytes_moved == plan.bytes_moved


@pytest.mark.parametrize("device", [*DEVICES, "A100"])
@pytest.mark.parametrize("form", ["row", "column"])
@pytest.mark.parametrize(
    "rows, dtype", [(1, "float32"), (8, "float16"), (2048, "bfloat16"), (300, "float64")]
)
def test_cliffs_are_where_auto_changes(device, form, rows, dtype, rng):
    shape, axis = in_shape(rows, 1000, form)
    plan = ons.plan(shape, axis, dtype=dtype, device=device, num_threads=4)
    cliffs = plan.cliffs()
    assert [cliff.N for cliff in cliffs] == sorted({cliff.N for cliff in cliffs})
    assert all(a.then == b.method for a, b in itertools.pairwise(cliffs))
    limits = [0, *(cliff.N for cliff in cliffs), 2**29]

    def plan_at(N):
        return ons.plan(*in_shape(rows, N, plan.form), dtype=dtype, device=device, num_threads=4)

    names = [cliff.method for cliff in cliffs] + [cliffs[-1].then if cliffs else plan.method]
    for name, low, high in zip(names, limits[:-1], limits[1:], strict=True):
        lengths = {low + 1, high, *(int(n) for n in rng.integers(low + 1, high + 1, 5))}
        assert {plan_at(N).method for N in lengths} == {name}
    for cliff in cliffs:
        for N, each in ((cliff.N, cliff.bytes_an_element), (cliff.N + 1, cliff.bytes_an_element_then)):
            assert each == plan_at(N).bytes_moved / (rows * N)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", ["row", "column"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_auto_takes_what_can_run(device, form, dtype):
    """Around every method's limit, aligned and unaligned: auto's plan equals the plan of its method by
    name."""
    limits = {
        cost.cannot for N in (1, 2**24) for cost in ons.plan(*in_shape(64, N, form), device=device).others
    }
    lengths = {int(n) for cannot in limits for n in re.findall(r"\d+", cannot)} | {2**13, 2**18, 2**20}
    for rows, N in itertools.product((1, 33, 64, 4096), sorted(lengths)):
        for shape, axis in (in_shape(rows, N + beyond, form) for beyond in (0, 1, 12000)):
            plan = ons.plan(shape, axis, dtype=dtype, device=device)
            named = ons.plan(shape, axis, dtype=dtype, device=device, method=plan.method)
            assert (named.threads, named.tile, named.longest_row) == (
                plan.threads,
                plan.tile,
                plan.longest_row,
            )


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("method, N", [("fused_warp", 20), ("fused_block", 300), ("cluster", 4099)])
def test_who_adds_up_what_of_a_column_is_of_its_length_alone(method, N, dtype):
    """On a GPU. A thread takes packs of four columns if their number is a multiple of 4, else one column. In
    float32, a thread of fused_block takes one column unless their number is a multiple of 8."""
    plans = [ons.plan((N, w), 0, dtype=dtype, device="cuda", method=method) for w in (2, 33, 4, 4096)]
    assert len({(plan.blocks_a_row, plan.tile, plan.longest_row) for plan in plans}) == 1
    in_wide_strips = method == "fused_block" and dtype == "float32"
    if method != "fused_warp" and not in_wide_strips:  # there, the number of columns sets the rows of a block
        assert len({(plan.threads, plan.width) for plan in plans}) == 1
    elements = [plan.elements_a_thread for plan in plans]
    assert elements[0] == elements[1] >= elements[2] >= elements[3]
    assert elements[1] > elements[3] and (elements[2] == elements[3]) != in_wide_strips


@pytest.mark.parametrize(
    "shape, width, threads",
    [
        ((50000, 64, 77), 77, 160),  # a slice a block: two threads share a column
        ((50000, 64, 5), 50, 128),  # ten slices
        ((500, 100, 1023), 96, 384),  # a part of a slice
        ((500, 448, 1023), 32, 448),
        ((30, 64, 77), 32, 64),  # whole slices would be too few blocks
        ((50000, 40, 77), 32, 64),  # half of the threads would have 8 elements
    ],
)
def test_float32_columns_of_a_block(shape, width, threads):
    plan = ons.plan(shape, 1, device="H100")
    assert (plan.method, plan.width, plan.threads) == ("fused_block", width, threads)
    backward = ons.plan((50000, 100, 5), 1, operation="softmax_backward", device="H100")
    assert (backward.width, backward.threads) == (32, 128)  # its last part is not full


@pytest.mark.parametrize("N, rows, of_float32, of_16_bits", [(512, 10**6, 128, 128), (1000, 4096, 128, 64)])
def test_rows_of_whole_warps_have_small_blocks(N, rows, of_float32, of_16_bits):
    """On a GPU. Many rows have the smallest blocks. The elements that a thread adds up stay the same."""
    for dtype, threads in (("float32", of_float32), ("bfloat16", of_16_bits), ("float16", of_16_bits)):
        plan = ons.plan((rows, N), dtype=dtype, device="cuda", method="fused_warp")
        assert (plan.threads, plan.width) == (threads, threads // 32)
    many = ons.plan((10**6, 1000), dtype="float32", device="cuda", method="fused_warp")
    fewer = ons.plan((4096, 1000), dtype="float32", device="cuda", method="fused_warp")
    assert many.threads == 32 and many.elements_a_thread == fewer.elements_a_thread == 32
    short = ons.plan((10**6, 520), device="cuda", method="fused_warp")
    values = ons.plan((10**6, 1000), device="cuda", method="fused_warp", operation="logsumexp")
    assert short.threads == values.threads == 64  # a block of one warp would end too soon


@pytest.mark.parametrize(
    "dtype, rows, N, elements, width",
    [
        ("float32", 10**6, 23, 24, 128),  # one lane has 6 chunks
        ("float32", 10**8, 3, 4, 640),  # one lane takes 5 rows
        ("float32", 10**6, 3, 4, 384),  # 3 rows, so that all lanes have some
        ("float32", 10**5, 3, 4, 128),
        ("float32", 10**8, 4, 4, 512),  # whole packs
        ("float32", 10**5, 4, 4, 256),  # a block of 128 rows would end too soon
        ("bfloat16", 10**8, 1, 4, 2048),
        ("float32", 10**6, 33, 20, 64),  # two lanes
        ("float32", 64, 33, 20, 16),
        ("float32", 10**6, 32, 8, 32),  # whole packs: four lanes
        ("bfloat16", 10**6, 257, 36, 16),
        ("bfloat16", 64, 257, 20, 2),  # half a warp
        ("bfloat16", 10**6, 60, 32, 64),  # whole packs, but not a multiple of 16 elements
        ("bfloat16", 10**6, 84, 24, 32),
        ("bfloat16", 10**6, 124, 16, 16),  # 8 lanes have one empty chunk: not staged
        ("bfloat16", 10**6, 160, 20, 16),  # a multiple of 32 bytes, but 8 of 48 chunks would be empty
        ("bfloat16", 10**6, 64, 16, 32),
    ],
)
def test_short_rows_come_together(dtype, rows, N, elements, width):
    """Short rows are staged in shared memory. As few lanes share a row as can hold it. The parameters are the
    elements of a lane and the rows of a block."""
    plan = ons.plan((rows, N), dtype=dtype, device="cuda", method="fused_warp")
    assert (plan.elements_a_thread, plan.width) == (elements, width)


@pytest.mark.parametrize(
    "N, float32, bits_16",
    [
        (100, (32, 8), (32, 8)),
        (1024, (128, 8), (128, 8)),
        (1028, (96, 16), (96, 16)),  # with 64 threads, half of them would have no element
        (1025, (32, 48), (32, 48)),  # an unaligned row takes one warp
        (1600, (128, 16), (64, 32)),
        (2049, (160, 16), (96, 32)),
        (4096, (256, 16), (128, 32)),
        (4097, (160, 32), (96, 48)),
        (4100, (160, 32), (160, 32)),
        (13231, (416, 32), (224, 64)),
        (16385, (544, 32), (544, 32)),
    ],
)
def test_warps_of_a_block(N, float32, bits_16):
    """On a GPU. A pair is (threads, elements per thread). 16-bit rows that stay 16-bit have half the warps,
    unless they are very short or this would waste many. Unaligned rows have even fewer. The bits stay the
    same (gpu/test_bits.py)."""
    for rows in (1, 10**6):
        plans = [
            ons.plan((rows, N), dtype=dtype, device="cuda", method="fused_block")
            for dtype in ("float32", "bfloat16", "float16")
        ]
        shapes = [(plan.threads, plan.elements_a_thread) for plan in plans]
        assert shapes == [float32, bits_16, bits_16]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_few_rows_go_to_more_warps_and_blocks(dtype):
    """On a GPU. While multiprocessors would be idle, rows that fit a warp or a block go to several."""
    for rows, N, method in [
        (1, 1024, "fused_block"),
        (64, 513, "fused_block"),
        (1, 512, "fused_warp"),
        (4096, 1024, "fused_warp"),
        (33, 16384, "cluster"),
        (34, 16384, "fused_block"),
        (1, 4096, "fused_block"),
    ]:
        assert ons.plan((rows, N), dtype=dtype, device="cuda").method == method


@pytest.mark.parametrize(
    "rows, N, blocks, threads, elements",
    [
        (1, 32000, 16, 128, 16),  # many rows have one warp where these few have four
        (8, 50257, 13, 256, 16),
        (1, 128256, 16, 256, 32),  # two warps
        (1, 201088, 15, 448, 32),  # two warps; each block has a multiprocessor of its own
        (8, 201088, 13, 256, 64),  # one warp; there are more blocks than multiprocessors
        (20, 32000, 6, 192, 32),
        (66, 32000, 4, 128, 64),
        (1, 3000, 2, 128, 16),
    ],
)
def test_few_rows_of_a_cluster(rows, N, blocks, threads, elements):
    """On a GPU. While multiprocessors would be idle, a row gets more blocks and warps, with the same bits."""
    for dtype in ("float32", "bfloat16"):
        plan = ons.plan((rows, N), dtype=dtype, device="cuda", method="cluster")
        assert (plan.blocks_a_row, plan.threads, plan.elements_a_thread) == (blocks, threads, elements)


@pytest.mark.parametrize(
    "rows, N, method",
    [(1, 8192, "fused_block"), (1, 8196, "cluster"), (8, 128256, "cluster"), (16, 128256, "split")],
)
def test_few_long_rows_of_one_value(rows, N, method):
    """On a GPU. logsumexp takes the cluster that softmax takes for few rows, while each row has enough
    multiprocessors."""
    for dtype in ("float32", "bfloat16"):
        assert ons.plan((rows, N), dtype=dtype, device="cuda", operation="logsumexp").method == method


@pytest.mark.parametrize(
    "N, method, blocks",
    [
        (16383, "fused_block", 1),
        (16385, "cluster", 2),
        (20001, "cluster", 2),
        (20004, "cluster", 3),
    ],
)
def test_16_bit_rows_that_are_not_whole_packs(N, method, blocks):
    """On a GPU. One block if it holds the row. Otherwise a cluster in which few warps have no element."""
    plan = ons.plan((2048, N), dtype="bfloat16", device="cuda")
    assert (plan.method, plan.blocks_a_row) == (method, blocks)


def test_cliffs_of_the_gpu_are_those_of_the_readme():
    plan = ons.plan((2048, 131072), device="cuda")
    if plan.registers is None:  # the plan assumes an H100
        found = [(cliff.N, cliff.method, cliff.then) for cliff in plan.cliffs()]
        assert found == [
            (1024, "fused_warp", "fused_block"),
            (16384, "fused_block", "cluster"),
            (1 << 20, "cluster", "split"),
        ]


MIB = 2**20


def cpu_method(shape, threads, caches, axis=-1, dtype="float32"):
    return _core.plan(shape, axis, dtype=dtype, num_threads=threads, caches=caches)["method"]


@pytest.mark.parametrize("caches", [(MIB, 32 * MIB, 2), (2 * MIB, 260 * MIB, 32), (MIB // 4, 8 * MIB, 8)])
def test_one_thread_keeps_rows_of_a_mebibyte_in_the_caches(caches):
    for rows, N, method in [(128, 131072, "fused"), (64, 2**18, "fused"), (64, 2**18 + 1, "online")]:
        assert cpu_method((rows, N), 1, caches) == method


def test_a_threads_rows_fit_its_part_of_the_caches():
    """Three rows of floats fit a core's own cache plus its part of the last one. This part is never smaller
    than an equal share."""
    for threads, caches, bytes_ in [
        (4, (MIB // 4, 2 * MIB, 8), 3 * MIB // 4),
        (8, (MIB // 4, 2 * MIB, 8), MIB // 2),
        (16, (MIB // 4, 2 * MIB, 8), MIB // 2),
        (2, (MIB, 0, 1), MIB),
    ]:
        longest = bytes_ // 3 // 4
        assert cpu_method((4096, longest), threads, caches) == "fused"
        assert cpu_method((4096, longest + 1), threads, caches) == "online"
        assert cpu_method((4096, longest // 2), threads, caches, dtype="float64") == "fused"
        assert cpu_method((4096, longest // 2 + 1), threads, caches, dtype="float64") == "online"


def test_scratch_memory_stays_below_what_is_kept_from_call_to_call():
    """However large the caches are, the threads' three rows each stay within 32 MiB."""
    caches = (64 * MIB, 1024 * MIB, 64)
    for rows, N, most in [(4096, 2**18, 10), (4096, 2**17, 21), (4096, 2**16, 42)]:
        assert cpu_method((rows, N), most, caches) == "fused"
        assert cpu_method((rows, N), most + 1, caches) == "online"
    assert cpu_method((64, 2**18), 16, caches) == "online"
    assert cpu_method((64, 2**18), 8, caches) == "fused"


# A GPU to plan for: multiprocessors, most blocks of a cluster, bandwidth.
GPUS = {
    "H200": (132, 16, 4.8e12),
    "H100": (132, 16, 3.35e12),
    "B200": (148, 16, 8e12),
    "A100": (108, 0, 2.039e12),
    "L4": (58, 0, 3e11),
    "RTX 4090": (128, 0, 1.008e12),
}


@pytest.mark.parametrize("name", GPUS)
def test_a_plan_for_a_gpu_by_its_name(name):
    plan = ons.plan((2048, 131072), device=name)
    assert plan.device == name and plan.registers is None
    assert plan.copy_speed == pytest.approx(0.88 * GPUS[name][2])
    for spelled in (name.lower(), name.replace(" ", ""), f" {name}"):
        assert ons.plan((2048, 131072), device=spelled) == plan
    text = str(plan)
    assert f"on {name}\n" in text and "no driver was asked" in text and "assumed" not in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_the_gpu_that_is_assumed_is_the_h100_by_name():
    assumed = ons.plan((2048, 131072), device="cuda")
    if assumed.registers is None:
        named = ons.plan((2048, 131072), device="H100")
        assert {**vars(named), "device": "cuda"} == vars(assumed)
        assert named.cliffs() == assumed.cliffs()


@pytest.mark.parametrize("name", ["V100", "", " ", "A100\0", "H 2 0 0 0", "\udc80", b"A100", 90])
def test_a_gpu_of_no_known_name(name):
    with pytest.raises(ValueError) as raised:
        ons.plan((8, 8), device=name)
    if name != "\udc80":
        for known in ("'cpu'", "'cuda'", *GPUS):
            assert known in str(raised.value)


def test_an_array_elsewhere_has_no_plan_for_a_gpu():
    with pytest.raises(ValueError, match="device is 'A100', but the array is on the CPU"):
        ons.plan(np.zeros((8, 8)), device="A100")


@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize("form", ["row", "column"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("operation", ["softmax", "log_softmax", "logsumexp"])
def test_auto_takes_what_runs_on_that_gpu(name, form, dtype, operation):
    for rows, N in itertools.product((1, 4, 64, 300, 10**5), (1, 33, 1024, 5000, 32768, 65537, 2**19, 2**22)):
        shape, axis = in_shape(rows, N, form)
        plan = ons.plan(shape, axis, dtype=dtype, device=name, operation=operation)
        assert plan.longest_row is None or plan.longest_row >= N
        assert GPUS[name][1] or plan.method != "cluster"
        named = ons.plan(shape, axis, dtype=dtype, device=name, operation=operation, method=plan.method)
        assert (named.threads, named.tile, named.width) == (plan.threads, plan.tile, plan.width)
        (cluster,) = (cost for cost in plan.others if cost.method == "cluster")
        assert GPUS[name][1] or cluster.cannot == "does not run here"


@pytest.mark.parametrize("name", GPUS)
def test_thresholds_are_parts_of_what_a_gpu_has(name):
    """On the H200 the thresholds are 264, 256 and 22 rows. Elsewhere they grow with the multiprocessors,
    rounded up. The last one also grows with the bandwidth."""
    multiprocessors, clusters, bandwidth = GPUS[name]

    def methods_around(rows, N, dtype="float32"):
        return [ons.plan((r, N), dtype=dtype, device=name).method for r in (rows, rows + 1)]

    def share(of_the_h200):
        return math.ceil(of_the_h200 * multiprocessors / 132)

    assert methods_around(2 * multiprocessors, 1024) == ["fused_block", "fused_warp"]
    assert methods_around(1, 2**21, "bfloat16") == ["grid", "split"]
    if clusters:
        fewest = math.ceil(share(22) * bandwidth / 4.8e12)
        assert methods_around(fewest - 1, 2**19) == ["split", "cluster"]
    else:
        assert methods_around(share(256) - 1, 2**18, "bfloat16") == ["split", "online"]


@pytest.mark.parametrize("name", ["A100", "L4", "RTX 4090"])
def test_many_long_rows_without_clusters(name):
    """For 16 bits, one block per row is ahead although it reads twice. For other types, only if L2 holds much
    of the row."""
    for rows, N, dtype, method in [
        (4096, 65536, "bfloat16", "online"),
        (4096, 65536, "float16", "online"),
        (4096, 2**18, "bfloat16", "online"),
        (4096, 2**19 + 1, "bfloat16", "split"),
        (4096, 40000, "float32", "online"),
        (4096, 262144, "float32", "split"),
        (16, 262144, "bfloat16", "split"),
        (4096, 32768, "float32", "fused_block"),
    ]:
        assert ons.plan((rows, N), dtype=dtype, device=name).method == method
    assert ons.plan((4096, 2**19), dtype="bfloat16", device=name, operation="log_softmax").method == "split"


@pytest.mark.parametrize("name", ["A100", "L4", "RTX 4090", "H100"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_the_k_largest_are_found_on_every_gpu(name, dtype):
    """This includes few float64 rows, although their largest tiles do not fit a block's shared memory."""
    for rows, N, k in [(1, 50257, 5), (64, 200000, 64), (5000, 40000, 1024), (3, 2**22, 1024)]:
        plan = ons.plan((rows, N), dtype=dtype, device=name, operation="softmax_topk", k=k)
        assert plan.method in str(plan)
        assert ("3 to 14 reads" in plan.reason) == (name in ("L4", "RTX 4090") and dtype == "float64")


def test_what_selects_tells_of_its_reads_and_its_tiles():
    """On a GPU. The operation has a planner of its own."""
    many = ons.plan((64, 50257), operation="softmax_topk", k=2000, device="H200")
    one_read = ons.plan((64, 50257), operation="softmax_topk", k=1000, device="H200")
    read = 64 * 50257 * 4
    assert "3 to 14 reads" in many.reason and many.bytes_moved == 3 * read + 64 * 2000 * 12
    assert one_read.bytes_moved == read + 64 * 1000 * 12
    shares = {cost.method: (cost.most_x_copy, cost.cannot) for cost in many.others}
    assert shares["online"] == (1.0, "") and shares["cluster"] == (None, "at most 1024 of each row")
    for N in (256, 10_000, 100_000):
        plan = ons.plan((64, N), operation="softmax_topk", k=8, device="H200")
        assert plan.tile >= N and N * 4 <= plan.on_chip_bytes < (N + 4) * 4


def test_cliffs_of_extreme_shapes():
    assert all(cliff.bytes_an_element == 0 for cliff in ons.plan((0, 5)).cliffs())
    assert isinstance(ons.plan((2**40, 1), dtype="float64").cliffs(), tuple)
    assert "the same method for every length" in str(ons.plan((2**46, 3)))


WIDTHS = {"float16": 2, "float32": 4, "float64": 8}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("form", ["row", "column"])
def test_no_figure_overflows(device, dtype, form):
    """Shapes up to the largest number of elements, by every method."""
    methods = {method.name: method for method in ons.methods(device)}
    for rows in (1, 2, 3, 2**8, 2**24 + 1, 2**40, 2**47, 2**48):
        shape, axis = in_shape(rows, 2**48 // rows, form)
        plan = ons.plan(shape, axis, dtype=dtype, device=device, num_threads=1024)
        for cost in plan.others:
            if cost.bytes_moved is not None:
                reads = methods[cost.method].reads
                if device == "cuda" and cost.method == "exact":
                    reads = 1 if cost.on_chip_bytes else 2
                of_all = (reads + methods[cost.method].writes) * WIDTHS[dtype]
                assert cost.bytes_moved == plan.rows * plan.N * of_all
                assert 0 <= cost.on_chip_bytes <= 8 * (plan.N + 3)  # rounded up to whole chunks
                named = ons.plan(
                    shape, axis, dtype=dtype, device=device, method=cost.method, num_threads=1024
                )
                # at most a copy of everything for each thread, plus the state of each block of a row
                assert 0 <= named.workspace_bytes <= 1025 * 8 * plan.rows * plan.N + 2**33
        assert isinstance(plan.cliffs(), tuple) and str(plan)


@pytest.mark.parametrize("device", [None, "cuda"])
@pytest.mark.parametrize("dtype", WIDTHS)
def test_more_elements_than_can_be_planned(device, dtype):
    ons.plan((2**24, 2**24), dtype=dtype, device=device)
    of_one = [(n,) for n in (2**48 + 1, 2**59, 2**61, 2**62, 2**63 - 1)]
    for shape in (*of_one, (2**24, 2**24 + 1), (2**60, 1), (2**31, 2**31, 2**31)):
        for axis in (0, -1, None):
            with pytest.raises(ValueError, match=r"shape.*expected at most 2\^48 elements"):
                ons.plan(shape, axis, dtype=dtype, device=device)


def test_broadcast_arrays_of_more_elements_than_memory_holds():
    for shape in ((2**61,), (2**31, 2**30), (2**48, 2)):
        x = np.broadcast_to(np.float16(1), shape)
        for axis, dtype in itertools.product((0, -1), (None, "float32", "float64")):
            with pytest.raises(ValueError, match=r"shape.*expected at most 2\^48 elements"):
                ons.plan(x, axis, dtype=dtype)
    assert ons.plan(np.broadcast_to(np.float16(1), (2**31, 2**17)), 0).bytes_moved >= 2**50


def test_arrays_without_elements_may_be_of_any_length():
    for shape in ((0, 2**59), (2**59, 0), (2**30, 0, 2**29)):
        for dtype in (np.float16, np.float32, np.float64):
            x = np.empty(shape, dtype)
            for axis in (0, -1, None):
                for method in METHODS:
                    assert ons.softmax(x, axis, method=method).shape == shape
                    assert ons.softmax(x, axis, method=method, out=x) is x
                    plan = ons.plan(x, axis, method=method)
                    assert plan.bytes_moved == plan.workspace_bytes == 0 <= plan.on_chip_bytes
    assert ons.plan((2**62, 2**62, 0)).bytes_moved == 0
    for shape, method in itertools.product(((2, 64, 0), (0, 64, 3)), ("auto", "fused_block")):
        for operation in ("softmax", "softmax_backward"):
            plan = ons.plan(shape, 1, method=method, operation=operation, device="H100")
            assert plan.bytes_moved == 0


def test_seconds():
    plan = ons.plan((1000, 1000), device="cuda")
    assert plan.seconds(1e9) == 8e6 / 1e9
    for wrong in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="above 0"):
            plan.seconds(wrong)
    a100 = ons.plan((1000, 1000), device="A100")
    assert a100.seconds() == 8e6 / a100.copy_speed and 1e12 < a100.copy_speed < 2.039e12
    if plan.registers is None:
        assert plan.seconds() == plan.measured_seconds > 8e6 / plan.copy_speed
    on_cpu = ons.plan((1000, 1000), num_threads=1)
    assert on_cpu.copy_speed is None
    assert on_cpu.seconds() == 8e6 / _copy_speed.of_memory(1)
    assert 1e8 < _copy_speed.of_memory(1) < 1e13
    assert _copy_speed.of_memory(2) == _copy_speed.of_memory(2)


def test_another_gpu_has_no_copy_speed():
    plan = ons.plan((8, 8), device="A100")
    unknown = _plan.Plan(**{**vars(plan), "copy_speed": None})
    assert unknown.seconds() is None and unknown.seconds(8e9) == 512 / 8e9
    assert "give a bandwidth" in str(unknown)
    assert "at the speed of a copy" in unknown.to_text(1e12)


def test_text_and_html():
    plan = ons.plan((2048, 131072), device="cuda")
    text, html = str(plan), plan._repr_html_()
    assert plan.reason in " ".join(text.split()) and plan.reason in html
    for part in ("2048 rows of N = 131072", "What each method would cost", "Where auto changes"):
        assert part in text and part in html
    assert "2.15 GB" in text and "tiles of 131072" in text and f"{plan.warps} warps" in text
    assert "at most 1024" in html and html.count("<table") == html.count("</table>") == 2
    assert all(len(line) <= 80 for line in text.splitlines())
    if plan.registers is None:
        assert "auto takes it for rows of 16385 to 1048576" in text
    assert "auto takes it" not in str(ons.plan((2048, 131072), device="cuda", method="safe"))
    assert "as given" in plan.to_text(1e12) and "as given" in plan.to_html(1e12)
    named = ons.plan((4, 100), method="safe")
    assert named.measured == "" and "measured, x copy" not in str(named)


def test_sizes_and_durations():
    assert [_plan.size(n) for n in (0, 999, 1000, 2.15e9, 4.23e12)] == [
        "0 B",
        "999 B",
        "1 kB",
        "2.15 GB",
        "4.23 TB",
    ]
    assert [_plan.duration(s) for s in (2.0, 0.00125, 5e-7)] == ["2 s", "1.25 ms", "0.5 us"]


def test_methods_print_as_a_table():
    listed = ons.methods("cuda")
    assert isinstance(listed, list) and all(isinstance(m, ons.Method) for m in listed)
    text, html = str(listed), listed._repr_html_()
    for method in listed:
        assert re.search(rf"^{method.name} +{method.reads} +{method.writes} ", text, re.M)
        assert f">{method.name}<" in html
    shown = dict(re.findall(r"^(\w+) .*  (any N|at most \d+)  ", text, re.M))
    for method in listed:
        (cost,) = (c for c in ons.plan((1, 2**24), device="cuda").others if c.method == method.name)
        assert shown[method.name] == (cost.cannot.removeprefix("rows of ") or "any N")
    assert "cpu cuda" in str(ons.methods())
    assert {m.on_chip for m in ons.methods()} == {"O(1)", "O(tile)", "O(N)"}
    assert all(len(line) <= 80 for line in text.splitlines())


# ------------------------------------------------ what was measured


def rows_of_results(measured):
    """(file, device, type, shape, axis, threads, method, x copy) of each figure that a plan quotes."""
    place, _, cases = measured.partition(": ")
    file, _, device = place.partition(" on an ")
    for case in cases.split("; "):
        where, _, figures = case.partition(": ")
        found = re.fullmatch(r"(\w+) ([\dx]+)(?: axis (\d))?(?:, (\d+) threads?)?", where)
        assert found, case
        for figure in figures.split(", "):
            method, x_copy = figure.split(" ")
            yield file, device, *found.groups(), method, float(x_copy)


def measured_x_copy(file, device, dtype, shape, axis, threads, method):
    with open(os.path.join(ROOT, file)) as source:
        document = json.load(source)
    assert device == document["processor" if threads else "gpu"]
    if threads:
        (case,) = (c for c in document["cases"] if (c["shape"], c["threads"]) == (shape, int(threads)))
        assert document["dtype"] == dtype
        copies = [f["seconds"] for f in case["figures"].values() if f["kind"] == "copy"]
        return min(copies) / case["figures"][f"{method} out="]["seconds"]
    label = shape + (f" axis {axis}" if axis else "")
    parts = ("bands", "other", "small")  # "chart" repeats some of these shapes
    wanted = [c for c in document["cases"] if (c["label"], c["dtype"]) == (label, dtype)]
    (case,) = (c for c in wanted if c["part"] in parts)
    return case["figures"][method]["x_copy"]


@pytest.mark.skipif(not os.path.isdir(RESULTS), reason="the results are not beside the tests")
def test_what_a_plan_quotes_was_measured():
    plans = [
        ons.plan(*in_shape(rows, N, form), device=device, num_threads=threads)
        for device in (*DEVICES, "A100")
        for form in ("row", "column")
        for rows in (1, 16, 64, 2048)
        for N in (100, 3000, 40000, 100000, 400000, 2**24)
        for threads in ((1, 2) if device == "cpu" else (None,))
    ]
    quoted = {plan.measured for plan in plans}
    assert len(quoted - {""}) >= 9
    for measured in quoted - {""}:
        for *where, method, x_copy in rows_of_results(measured):
            assert measured_x_copy(*where, method) == pytest.approx(x_copy, abs=0.0051), measured
    for plan in plans:
        if plan.measured:
            assert plan.method in plan.measured


@pytest.mark.parametrize(
    "rows, N, k, dtype, method",
    [
        (64, 50257, 1005, "float32", "cluster"),
        (64, 50257, 1006, "float32", "online"),  # too few threads' maxima to bound the k-th largest
        (1, 2**20, 1024, "float32", "split"),
        (128, 65536, 8, "float32", "cluster"),
        (129, 65536, 8, "float32", "online"),
        (128, 65541, 8, "float32", "online"),
        (128, 65541, 8, "bfloat16", "cluster"),  # one block reads such a row slowly
        (500, 400, 301, "float32", "fused_warp"),
        (500, 200, 20, "float64", "fused_warp"),
        (500, 200, 21, "float64", "fused_block"),
        (600, 200, 21, "float64", "fused_warp"),
        (1000, 200, 151, "float64", "fused_block"),
        (300, 128, 100, "float64", "fused_block"),
        (300, 128, 100, "float32", "fused_warp"),
    ],
)
def test_where_top_k_changes_its_method(rows, N, k, dtype, method):
    plan = ons.plan((rows, N), dtype=dtype, device="H100", operation="softmax_topk", k=k)
    assert plan.method == method
