"""Evidence is recognised by its content; logs as the real tools print them; whatever is wrong is named in one line."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.errors import BadFile
from planner.runs.calibrate.evidence import gather
from planner.runs.calibrate.gemm_table import read_products
from planner.runs.calibrate.nccl_log import read_logs
from tests.each import each

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "calibrate"
HEADER = (
    "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304 step: 2(factor) warmup iters: 5 iters: 20 validation: 1\n"
)
COLUMNS = (
    "#       size     count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
)
END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 100.0\n"


def ranks(nodes=1, each=8, device="NVIDIA H100 80GB HBM3"):
    return "".join(
        f"#  Rank {node * each + i:2d} Group  0 Pid {100 + i} on node{node} device {i:2d} [0x{i:02x}] {device}\n"
        for node in range(nodes)
        for i in range(each)
    )


def row(size, time, ratio, redop="sum", wrong="0"):
    algbw = size / time / 1e3
    figures = f"{time:.1f} {algbw:.2f} {ratio * algbw:.2f} {wrong:>6}"
    return f"{size:12d} {size // 4:12d}     float     {redop}      -1  {figures}  {figures}\n"


def log(rows, *, head=HEADER, where=None, end=END):
    return head + "#\n# Using devices\n" + (ranks() if where is None else where) + COLUMNS + "".join(rows) + end


def sizes(ratio, **how):
    return [row(2**20 << i, 20.0 * 2**i, ratio, **how) for i in range(4)]


def read(text, name="nccl.log"):
    return read_logs(Path(name), text)


def test_the_files_of_the_example_are_what_they_hold():
    found = gather(EXAMPLES / name for name in ("runs.jsonl", "all_reduce_2_nodes.log", "products.csv"))
    assert [file for file, _ in found.runs] == ["runs.jsonl"] * 3
    (test,) = found.logs
    assert (test.operation, test.nodes, test.ranks_per_node, test.ranks) == ("all_reduce", 2, 8, 16)
    assert test.device == "NVIDIA A100-SXM4-40GB"
    assert test.transfers[0].size == 65536
    assert test.transfers[-1].seconds == pytest.approx(0.225083)
    assert len(found.products) == 12
    assert found.notes == []


@pytest.mark.parametrize(
    ("ratio", "redop", "name"),
    [(2 * 7 / 8, "sum", "all_reduce"), (7 / 8, "sum", "reduce_scatter"), (1.0, "sum", "sendrecv")],
)
def test_a_test_is_known_by_its_bandwidths(ratio, redop, name):
    ((found,), notes) = read(log(sizes(ratio, redop=redop)))
    assert found.operation == name
    assert notes == []


@pytest.mark.parametrize("name", ["all_gather", "alltoall"])
def test_gather_and_all_to_all_are_known_by_a_name_only(name):
    text = log(sizes(7 / 8, redop="none"))
    with pytest.raises(BadFile, match="all_gather or alltoall cannot be distinguished"):
        read(text)
    assert read(text, f"{name}-8.log")[0][0].operation == name
    assert read(f"$ mpirun -np 8 ./build/{name}_perf -b 1M\n{text}")[0][0].operation == name
    assert read(f"# Collective test starting: {name}_perf\n{text}")[0][0].operation == name


def test_several_tests_in_one_file_are_told_apart():
    text = "# Collective test starting: all_gather_perf\n" + log(sizes(7 / 8, redop="none"))
    text += "#\n# Collective test concluded: all_gather_perf\n"
    text += "# Collective test starting: all_reduce_perf\n" + log(sizes(14 / 8))
    assert [one.operation for one in read(text)[0]] == ["all_gather", "all_reduce"]


@pytest.mark.parametrize("between", ["", "#\n# Collective test concluded: all_gather_perf\n#\n"])
@pytest.mark.parametrize("start", ["# Collective test starting: {}_perf\n", "$ mpirun -np 8 ./build/{}_perf -b 1M\n"])
@pytest.mark.parametrize(("first", "second"), [("all_gather", "alltoall"), ("alltoall", "all_gather")])
def test_a_name_is_that_of_the_test_below_it(first, second, start, between):
    one, other = (start.format(name) + log(sizes(7 / 8, redop="none")) for name in (first, second))
    assert [each.operation for each in read(one + between + other)[0]] == [first, second]


def test_a_log_of_tagged_ranks_is_no_json(tmp_path):
    path = tmp_path / "all_reduce.log"
    path.write_text("".join(f"[1,0]<stdout>:{line}\n" for line in log(sizes(14 / 8)).splitlines()))
    assert [one.operation for one in gather([path]).logs] == ["all_reduce"]


@each("tag", ["[1,0]<stdout>:", "[1,0]<stdout> ", "[0] ", "0: ", "worker-1: ", "2025-02-12T10:11:12Z "])
def test_what_launchers_print_in_front_changes_nothing(tag):
    plain = log(sizes(14 / 8))
    tagged = "".join(f"{tag}{line}\n" for line in plain.splitlines())
    assert read(tagged)[0][0].transfers == read(plain)[0][0].transfers


def test_tags_in_the_middle_of_a_line_are_taken_out():
    line = (
        "  8388608     2097152     float     sum   -1[0]     92.0   91.18  159.6   0[0]     92.0   91.2   159.6    0\n"
    )
    ((found,), _) = read(log([line]))
    assert found.transfers[0].seconds == pytest.approx(92e-6)


def test_the_noise_of_nccl_is_passed_over():
    noise = "node0:1887:1901 [3] NCCL INFO Channel 00/24 : 0 1 2 3 4 5 6 7\nNCCL version 2.27.5+cuda12.8\n"
    rows = [noise + one for one in sizes(14 / 8)]
    assert len(read(noise + log(rows))[0][0].transfers) == 4


def test_older_tables_have_an_error_in_place_of_a_count_and_no_root():
    old = "  8388608  2097152  float  sum  92.0  91.18  159.6  2e-07  92.1  91.08  159.4  5e-07\n"
    where = "".join(f"#   Rank  {i} Pid  {i} on old device  {i} [0x0{i}] Tesla V100-SXM2-16GB\n" for i in range(8))
    ((found,), notes) = read(log([old], where=where))
    assert (found.operation, len(found.transfers), notes) == ("all_reduce", 1, [])


def test_in_place_columns_that_do_not_apply_are_no_matter():
    line = "  8388608  2097152  float  none  -1  92.0  91.18  79.78  N/A  -n/a-  -n/a-  -n/a-  -n/a-\n"
    plain = "  8388608  2097152  float  none  -1  92.0  91.18  79.78  N/A  93.0  90.2  78.9  N/A\n"
    for given_line in (line, plain):
        assert len(read(log([given_line]), "alltoall.log")[0][0].transfers) == 1


def test_a_log_that_is_cut_short_is_used_as_far_as_it_goes():
    whole = log(sizes(14 / 8), end="")
    ((found,), notes) = read(whole[:-90])
    assert len(found.transfers) in {3, 4}
    assert "cut short" in notes[0]


def test_sizes_that_came_out_wrong_are_left_out():
    ((found,), notes) = read(log([*sizes(14 / 8), row(2**24, 300.0, 14 / 8, wrong="12")]))
    assert len(found.transfers) == 4
    assert "1 sizes came out wrong" in notes[0]


@each(
    ("text", "message"),
    [
        (log(sizes(1.75), where=ranks(1, 1) * 2), "line 1: rank 0 appears 2 times.*MPI=1"),
        (log(sizes(1.75), where=" "), "line 1: no lines `Rank 0"),
        (log(sizes(1.75), where=ranks().replace("Rank  7", "Rank  9")), "ranks up to 9, of which only 8"),
        (log(sizes(1.75), where=ranks().replace("7 Group  0", "7 Group  1")), "NCCL_TESTS_SPLIT"),
        (log(sizes(1.75), where=ranks().replace("103 on node0", "103 on odd")), "different numbers of ranks"),
        (log(sizes(1.75), where=ranks().replace("[0x03] NVIDIA H100", "[0x03] NVIDIA A100")), "different devices"),
        ("# Collective test starting: broadcast_perf\n" + log(sizes(1.0)), "broadcast_perf is not fitted"),
        ("# Collective test starting: all_gather_perf\n" + log(sizes(1.75)), "called all_gather, with the bandwidths"),
        (log([]), "without a single complete size"),
        (HEADER, "no sizes below it"),
    ],
)
def test_a_log_that_tells_too_little_is_refused_by_its_line(text, message):
    with pytest.raises(BadFile, match=f"nccl.log: .*{message}"):
        read(text)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("m,n,k,dtype,time", "line 1: .* needs one of time_us.*is 'time' meant"),
        ("m,n,k,dtype,usec", "needs one of time_us"),
        ("m,n,k,precision,time_us", "needs column 'dtype'"),
        ("m,n,kk,dtype,time_us", "needs column 'k'; is 'kk' meant"),
        ("m,n,k,m,dtype,time_us", "column 'm' appears twice"),
    ],
)
def test_columns_that_are_nearly_right_are_refused_with_the_right_ones(header, message):
    with pytest.raises(BadFile, match=message):
        read_products(Path("gemm.csv"), f"{header}\n1,2,3,bf16,4\n")


@each(
    ("line", "message"),
    [
        ("1,2,3,bf16", "line 2: 4 values under 5 columns"),
        ("1,2,x,bf16,4", "line 2: k should be a whole number such as 4096, got 'x'"),
        ("1,2,3,int4,4", "line 2: dtype 'int4' is not fitted"),
        ("1,2,3,bf16,-4", "line 2: time_us should be a positive number"),
        ("1,2,3,bf16,", "line 2: neither a time nor a rate"),
        ("1,2,3,bf16,nan", "line 2: time_us should be a positive"),
    ],
)
def test_values_that_are_none_are_refused_by_their_line(line, message):
    with pytest.raises(BadFile, match=message):
        read_products(Path("gemm.csv"), f"m,n,k,dtype,time_us\n{line}\n")


def test_times_and_rates_in_any_unit_are_the_same_products():
    forms = [
        "M;N;K;dtype;time_ms\n4096;4096;4096;torch.bfloat16;0.25",
        "m\tn\tk\tdtype\ttflops\n4096\t4096\t4096\tfp16\t549.755813888",
    ]
    found = [read_products(Path("gemm.csv"), form)[0] for form in forms]
    assert [one.seconds for one in found] == pytest.approx([2.5e-4, 2.5e-4])
    assert {one.dtype for one in found} == {"bf16"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("hello world\n", "neither runs .* begins with 'hello world'"),
        ("", "empty, where runs"),
        ("[]", "an empty list"),
        ('[{"id": 1}]', "entry 1: id: "),
        ('{"id": 1}\n{"id": 2}\n', "line 1: id: "),
        ("{broken\n", "line 1 is not JSON"),
    ],
)
def test_a_file_that_is_no_evidence_says_so(tmp_path, content, message):
    path = tmp_path / "what"
    path.write_text(content)
    with pytest.raises(BadFile, match=message):
        gather([path])


def test_a_missing_file_says_so(tmp_path):
    with pytest.raises(BadFile, match="no such file"):
        gather([tmp_path / "none.log"])


SEEDS = [log(sizes(1.75)), (EXAMPLES / "products.csv").read_text(), (EXAMPLES / "runs.jsonl").read_text()[:3000]]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SEEDS), st.data())
def test_whatever_a_file_holds_the_answer_is_evidence_or_one_line(tmp_path_factory, seed, data):
    start = data.draw(st.integers(0, len(seed)))
    length = data.draw(st.integers(0, 40))
    junk = data.draw(st.text(max_size=20))
    path = tmp_path_factory.getbasetemp() / "fuzz.txt"
    path.write_bytes((seed[:start] + junk + seed[start + length :]).encode("utf-8", "surrogatepass"))
    try:
        found = gather([path])
    except BadFile:
        return
    assert found.runs or found.logs or found.products


def test_a_time_and_a_rate_of_one_product_have_to_agree():
    def product(rate):
        return read_products(
            Path("gemm.csv"), f'"m","n","k","dtype","time_us","tflops"\n1000,1000,1000,bf16,10,{rate}\n'
        )

    assert product(200)[0].seconds == pytest.approx(1e-5)
    assert product(190)[0].seconds == pytest.approx(1e-5)
    with pytest.raises(BadFile, match=r"line 2: time_us 10 is 1e-05 s, tflops 2 0.001 s; leave out the wrong column"):
        product(2)


def test_a_test_that_went_wrong_throughout_is_no_short_one():
    with pytest.raises(BadFile, match=r"of whose 4 sizes all came out wrong"):
        read(log(sizes(14 / 8, wrong="3")))
