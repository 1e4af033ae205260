#!/usr/bin/env python3
"""Single kernels as PyTorch launches them, timed on one GPU: what memory-bound operations reach of the memory, products in 16 and
8 bits in bursts and in long runs, grouped products of experts, and what the host takes to issue.

Device files of GPUs (calibrate/devices) state such rates, some of them by judgement; here they are measured. One CSV row each:

    part,kernel,dtype,shape,us,gb_s,tflops,note

us: median of bursts of about 5 ms behind a kernel that holds the stream. gb_s: the fewest bytes that the operation must move (each
input read once, each output written once) over that time. tflops: 2 m n k. Every row is written as soon as it is there.
"""

import argparse
import os
import statistics
import sys
import time

sys.dont_write_bytecode = True
from torch_attention import timed

COLUMNS = "part,kernel,dtype,shape,us,gb_s,tflops,note"
# Products y = x W^T as (m, n, k): dense layers of GPT-2 XL, Llama 3 8B and 70B, GPT-3, and a square one.
PRODUCTS = [(8192, 8192, 8192), (8192, 6144, 4096), (8192, 4096, 4096), (8192, 28672, 4096), (8192, 4096, 14336),
            (8192, 128256, 4096), (4096, 10240, 8192), (4096, 8192, 8192), (4096, 57344, 8192), (4096, 8192, 28672),
            (8192, 6400, 1600), (8192, 1600, 6400), (2048, 12288, 12288), (2048, 6144, 12288), (2048, 12288, 6144)]
# Experts as (experts, rows in all, width out, width in): Mixtral 8x7B, Qwen3 30B, gpt-oss 20B, DeepSeek-V3, of one rank.
GROUPS = [(8, 16384, 28672, 4096), (8, 16384, 4096, 14336), (16, 65536, 1536, 2048), (16, 65536, 2048, 768),
          (32, 32768, 5760, 2880), (32, 32768, 2880, 2880), (16, 32768, 4096, 7168), (16, 32768, 7168, 2048),
          (128, 65536, 1536, 2048), (4, 16384, 5760, 2880)]


class Report:
    def __init__(self, path, seconds):
        self.file = open(path, "w", encoding="utf-8")
        self.until = time.monotonic() + seconds
        self.failures = self.rows = 0
        self.line(COLUMNS)

    def line(self, text):
        self.file.write(text + "\n")
        self.file.flush()

    def row(self, part, kernel, dtype, shape, seconds, moved=0, flops=0, note=""):
        gb_s = f"{moved / seconds / 1e9:.1f}" if moved else ""
        tflops = f"{flops / seconds / 1e12:.1f}" if flops else ""
        text = f"{part},{kernel},{dtype},{shape},{seconds * 1e6:.2f},{gb_s},{tflops},{note}"
        print(text, flush=True)
        self.line(text)
        self.rows += 1

    def attempt(self, what, call):
        """What one kernel does not take must not end the others."""
        if time.monotonic() > self.until:
            print(f"{what}: not run: no time left")
            return
        try:
            call()
        except Exception as error:  # noqa: BLE001
            print(f"{what}: {type(error).__name__}: {str(error)[:200]}".replace("\n", " "), flush=True)
            self.failures += 1


def size(*tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def memory_bound(torch, report):
    F = torch.nn.functional
    rows, width, vocab = 16384, 4096, 50304
    short = {torch.bfloat16: "bf16", torch.float32: "fp32"}
    new = lambda *shape, dtype=torch.bfloat16, grad=False: torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_(grad)

    def op(name, dtype, call, moved, shape=f"{rows}x{width}"):
        report.attempt(f"{name} {short[dtype]}", lambda: report.row("memory", name, short[dtype], shape, timed(torch, call, 0.15), moved))

    def backward_of(out, inputs):
        gradient = torch.randn_like(out)
        return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)

    for dtype in (torch.bfloat16, torch.float32):
        x, y = new(rows, width, dtype=dtype), new(rows, width, dtype=dtype)
        n = size(x)
        out = torch.empty_like(x)
        op("copy", dtype, lambda: out.copy_(x), 2 * n)
        op("add", dtype, lambda: torch.add(x, y, out=out), 3 * n)
        op("multiply", dtype, lambda: torch.mul(x, y, out=out), 3 * n)
        op("accumulate", dtype, lambda: out.add_(x), 3 * n)
        op("fill", dtype, lambda: out.zero_(), n)
        op("sum-rows", dtype, lambda: x.sum(0), n)
        op("sum-all", dtype, lambda: x.sum(), n)
        op("dropout", dtype, lambda: F.dropout(x, 0.1, True), 2 * n + rows * width)
        op("concatenate", dtype, lambda: torch.cat((x, y), 1), 4 * n)
        op("transpose-copy", dtype, lambda: x.t().contiguous(), 2 * n)
        xg = new(rows, width, dtype=dtype, grad=True)
        for name, f in (("gelu-tanh", lambda t: F.gelu(t, approximate="tanh")), ("gelu", F.gelu), ("silu", F.silu), ("relu", F.relu)):
            op(name, dtype, lambda f=f: f(x), 2 * n)
            op(name + "-backward", dtype, backward_of(f(xg), (xg,)), 3 * n)
        weight, bias = new(width, dtype=dtype, grad=True), new(width, dtype=dtype, grad=True)
        with torch.no_grad():
            op("layer-norm", dtype, lambda: F.layer_norm(x, (width,), weight, bias), 2 * n)
            op("rms-norm", dtype, lambda: F.rms_norm(x, (width,), weight), 2 * n)
        op("layer-norm-backward", dtype, backward_of(F.layer_norm(xg, (width,), weight, bias), (xg, weight, bias)), 3 * n)
        op("rms-norm-backward", dtype, backward_of(F.rms_norm(xg, (width,), weight), (xg, weight)), 3 * n)
        other = torch.float32 if dtype == torch.bfloat16 else torch.bfloat16
        cast = torch.empty(rows, width, device="cuda", dtype=other)
        op("cast-to-" + short[other], dtype, lambda: cast.copy_(x), n + size(cast))
        scores = new(16, 32, 1024, 1024, dtype=dtype, grad=True)
        with torch.no_grad():
            op("softmax", dtype, lambda: F.softmax(scores, -1), 2 * size(scores), "524288x1024")
        op("softmax-backward", dtype, backward_of(F.softmax(scores, -1), (scores,)), 3 * size(scores), "524288x1024")
        del scores
        logits = new(8192, vocab, dtype=dtype, grad=True)
        target = torch.randint(vocab, (8192,), device="cuda")
        with torch.no_grad():
            op("cross-entropy", dtype, lambda: F.cross_entropy(logits, target), size(logits), f"8192x{vocab}")
        loss = F.cross_entropy(logits, target)
        op("cross-entropy-backward", dtype, lambda: torch.autograd.grad(loss, logits, retain_graph=True), 2 * size(logits), f"8192x{vocab}")
        del logits, loss
        table = new(vocab, width, dtype=dtype, grad=True)
        tokens = torch.randint(vocab, (rows,), device="cuda")
        with torch.no_grad():
            op("embedding", dtype, lambda: F.embedding(tokens, table), 2 * n)
        op("embedding-backward", dtype, backward_of(F.embedding(tokens, table), (table,)), n + size(table))
        order = torch.randperm(rows, device="cuda")
        op("gather-rows", dtype, lambda: x[order], 2 * n)
        op("scatter-add-rows", dtype, lambda: out.index_add_(0, order, x), 3 * n)
        del table
    for name, options in (("adamw-fused", dict(fused=True)), ("adamw-foreach", dict(foreach=True))):
        parameters = [torch.nn.Parameter(new(4096, 4096, dtype=torch.float32)) for _ in range(16)]
        for p in parameters:
            p.grad = torch.randn_like(p)
        step = torch.optim.AdamW(parameters, lr=1e-4, **options).step
        op(name, torch.float32, step, 7 * size(*parameters), "16x4096x4096")
        op(name + "-clip-norm", torch.float32, lambda: torch.nn.utils.clip_grad_norm_(parameters, 1e9), 3 * size(*parameters), "16x4096x4096")


def long_run(torch, call, seconds):
    """Seconds of a call in a run without pauses, of its second half, when clocks have settled."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    begin = time.monotonic()
    samples = []
    while time.monotonic() - begin < seconds:
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        for _ in range(20):
            call()
        b.record()
        b.synchronize()
        samples.append(a.elapsed_time(b) * 1e-3 / 20)
    return statistics.median(samples[len(samples) // 2 :])


def products(torch, report):
    bf16, e4m3 = torch.bfloat16, torch.float8_e4m3fn
    one = torch.ones((), device="cuda")

    def both(kernel, dtype, shape, call):
        m, n, k = shape
        name = f"{m}x{n}x{k}"
        report.row("product", kernel, dtype, name, timed(torch, call, 0.1), 0, 2.0 * m * n * k, "bursts")
        if shape in PRODUCTS[:5]:
            time.sleep(0.1)
            report.row("product", kernel, dtype, name, long_run(torch, call, 1.0), 0, 2.0 * m * n * k, "1 s without a pause")

    for m, n, k in PRODUCTS:
        def plain():
            x, w = torch.randn(m, k, device="cuda", dtype=bf16), torch.randn(n, k, device="cuda", dtype=bf16)
            both("linear", "bf16", (m, n, k), lambda: x @ w.t())
            gradient = torch.randn(m, n, device="cuda", dtype=bf16)
            report.row("product", "linear-weight-gradient", "bf16", f"{n}x{k}x{m}", timed(torch, lambda: gradient.t() @ x, 0.1), 0,
                       2.0 * m * n * k, "bursts")

        def eight(fast):
            x = torch.randn(m, k, device="cuda", dtype=bf16).to(e4m3)
            w = torch.randn(n, k, device="cuda", dtype=bf16).to(e4m3)
            both("scaled-tensor-" + ("fast" if fast else "split"), "fp8", (m, n, k),
                 lambda: torch._scaled_mm(x, w.t(), one, one, out_dtype=bf16, use_fast_accum=fast))

        def by_rows():
            x = torch.randn(m, k, device="cuda", dtype=bf16).to(e4m3)
            w = torch.randn(n, k, device="cuda", dtype=bf16).to(e4m3)
            a, b = torch.ones(m, 1, device="cuda"), torch.ones(1, n, device="cuda")
            both("scaled-rows-fast", "fp8", (m, n, k), lambda: torch._scaled_mm(x, w.t(), a, b, out_dtype=bf16, use_fast_accum=True))

        report.attempt(f"linear {m}x{n}x{k}", plain)
        report.attempt(f"scaled-tensor-fast {m}x{n}x{k}", lambda: eight(True))
        report.attempt(f"scaled-tensor-split {m}x{n}x{k}", lambda: eight(False))
        report.attempt(f"scaled-rows {m}x{n}x{k}", by_rows)


def unaligned(torch, report):
    """Rows that do not begin at multiples of 16 bytes: logits of odd vocabularies, and the two gradients."""
    for m, k in ((16384, 768), (8192, 4096)):
        for n in (50304, 50264, 50260, 50258, 50257):
            def go():
                make = lambda a, b: torch.randn(a, b, device="cuda", dtype=torch.bfloat16)
                x, w, dy = make(m, k), make(n, k), make(m, n)
                flops = 2.0 * m * n * k
                for name, call in (("logits", lambda: x @ w.t()), ("input-gradient", lambda: dy @ w), ("weight-gradient", lambda: dy.t() @ x)):
                    report.row("unaligned", name, "bf16", f"{m}x{n}x{k}", timed(torch, call, 0.05), 0, flops)

            report.attempt(f"unaligned {m}x{n}x{k}", go)


def grouped(torch, report):
    bf16 = torch.bfloat16
    for experts, rows, out, inner in GROUPS:
        shape = f"{experts}:{rows}x{out}x{inner}"
        flops = 2.0 * rows * out * inner
        x = torch.randn(rows, inner, device="cuda", dtype=bf16)
        w = torch.randn(experts, out, inner, device="cuda", dtype=bf16)
        dy = torch.randn(rows, out, device="cuda", dtype=bf16)
        even = torch.arange(1, experts + 1, device="cuda", dtype=torch.int32) * (rows // experts)
        # Uneven: sizes in multiples of 16 rows, the largest about twice the mean.
        share = torch.linspace(0.1, 1.9, experts)
        sizes = (share / share.sum() * rows / 16).floor().int() * 16
        sizes[-1] += rows - sizes.sum()
        uneven = sizes.cumsum(0).int().cuda()
        for note, ends in (("even", even), ("uneven", uneven)):
            def go():
                report.row("grouped", "forward", "bf16", shape, timed(torch, lambda: torch._grouped_mm(x, w.transpose(1, 2), ends), 0.1), 0, flops, note)
                report.row("grouped", "input-gradient", "bf16", shape, timed(torch, lambda: torch._grouped_mm(dy, w, ends), 0.1), 0, flops, note)
                report.row("grouped", "weight-gradient", "bf16", shape, timed(torch, lambda: torch._grouped_mm(dy.t(), x, ends), 0.1), 0, flops, note)

            report.attempt(f"grouped {shape} {note}", go)
        begin, lists = 0, []
        for end in even.tolist():
            lists.append((begin, end))
            begin = end
        report.attempt(f"one by one {shape}", lambda: report.row(
            "grouped", "one-by-one", "bf16", shape, timed(torch, lambda: [x[a:b] @ w[i].t() for i, (a, b) in enumerate(lists)], 0.1), 0, flops, "even"))


def host(torch, report):
    """Seconds of the host an operation, where kernels are shorter than it takes to issue them."""
    F = torch.nn.functional
    x = torch.randn(16, 64, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(64, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    masters = torch.randn(64, 64, device="cuda", requires_grad=True)

    def clocked(name, call, kernels):
        def go():
            for _ in range(20):
                call()
            samples = []
            for _ in range(7):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                for _ in range(200):
                    call()
                torch.cuda.synchronize()
                samples.append((time.perf_counter() - begin) / 200)
            report.row("host", name, "bf16", "16x64", statistics.median(samples), note=f"{kernels} kernels")

        report.attempt(name, go)

    y = torch.empty_like(x)
    clocked("add-in-place", lambda: y.add_(x), 1)
    clocked("linear-forward", lambda: F.linear(x, w), 1)
    clocked("linear-forward-backward", lambda: F.linear(x, w).sum().backward(), 6)

    def autocast():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            for _ in range(4):
                F.linear(x, masters)

    clocked("four-linears-autocast", autocast, 5)
    clocked("layer-norm-forward", lambda: F.layer_norm(x, (64,)), 1)


PARTS = {"memory": memory_bound, "products": products, "unaligned": unaligned, "grouped": grouped, "host": host}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, help="the CSV")
    parser.add_argument("--seconds", type=float, default=120, help="in all")
    parser.add_argument("--parts", default=",".join(PARTS))
    a = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        print(f"torch_kernels: no PyTorch: {error}", file=sys.stderr)
        return 1
    if not torch.cuda.is_available():
        print("torch_kernels: no CUDA device", file=sys.stderr)
        return 1
    torch.manual_seed(1)
    report = Report(a.out, a.seconds)
    print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name(0)}, {os.cpu_count()} cores")
    for part in a.parts.split(","):
        PARTS[part](torch, report)
        torch.cuda.empty_cache()
    print(f"torch_kernels: {report.rows} rows, {report.failures} kernels failed")
    return 0 if report.rows else 1


if __name__ == "__main__":
    sys.exit(main())
