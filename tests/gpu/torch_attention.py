#!/usr/bin/env python3
"""The attention of scenarios/gpu/plans.yaml as frameworks run it: PyTorch's scaled_dot_product_attention with cuDNN's kernels
and with FlashAttention 2, forward and backward, timed on one GPU.

`rehearse execute` performs attention with kernels of its own, whose masks are the CPU's. A plan of another framework is
simulated with the kernel that framework runs (`model.attention`, docs/scenario.md), so its times have to be measured too. For
each library this writes a file of measurements, DIR/attention-KERNEL.yaml, in the format of docs/data.md:

    rehearse_device: 1
    measurements_for: h100-80gb-hbm3     # `name` of the device file that `rehearse calibrate --device cuda` wrote
    attention:
      kernel: cudnn                      # or sdpa_flash: what scenarios and frameworks name
      rows: |
        part,causal,batch,seq,heads,kv_heads,head_dim,tflops,source
        forward,yes,16,1024,12,12,64,412.3,cuDNN 91900

tflops count all keys, two products forward and five backward, causal or not. Simulate with both:

    rehearse simulate PLAN.yaml --calibration calibration.yaml --calibration DIR/attention-cudnn.yaml

--self-check needs no PyTorch: made-up rows are written so, and the program must read them and take the times they say.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import torch_steps

COLUMNS = "part,causal,batch,seq,heads,kv_heads,head_dim,tflops,source"
BACKENDS = {"cudnn": "CUDNN_ATTENTION", "sdpa_flash": "FLASH_ATTENTION"}
HEAD_DIM = 64  # of all models in plans.yaml


def shapes_of(plans):
    """Each attention of the plans once: (batch, seq, heads, kv_heads, head_dim)."""
    shapes = []
    for plan in plans:
        m = torch_steps.MODELS[plan["model"]]
        shape = (plan["micro_batch"], plan["seq"], m["heads"], m.get("kv_heads", m["heads"]), m["hidden"] // m["heads"])
        if shape not in shapes:
            shapes.append(shape)
    return shapes


def flops(shape, backward):
    batch, seq, heads, _, head_dim = shape
    return 2.0 * (5 if backward else 2) * batch * heads * seq * seq * head_dim


def row(shape, backward, seconds, source):
    batch, seq, heads, kv_heads, head_dim = shape
    tflops = flops(shape, backward) / seconds / 1e12
    return f"{'backward' if backward else 'forward'},yes,{batch},{seq},{heads},{kv_heads},{head_dim},{tflops:.7g},{source}"


def file_text(device, kernel, rows, provenance):
    lines = ["rehearse_device: 1", f"measurements_for: {device}", "attention:", f"  kernel: {kernel}", "  rows: |"]
    lines += ["    " + line for line in [COLUMNS] + rows]
    lines += ["provenance:"] + [f"  {key}: {json.dumps(value)}" for key, value in provenance.items()]
    return "\n".join(lines) + "\n"


def write(path, text):
    with open(path + ".part", "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(path + ".part", path)


def device_name(path):
    found = re.search(r"^name: *(\S+)", open(path, encoding="utf-8").read(), re.MULTILINE)
    if not found:
        sys.exit(f"torch_attention: no name in {path}")
    return found.group(1)


def timed(torch, call, seconds):
    """Median seconds of a call, in bursts of about 5 ms behind a kernel that holds the stream until all is queued."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()

    def burst(n):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(int(2e5 + 2e4 * n))  # cycles: some 10 us a call for the host, as far as it goes
        begin.record()
        for _ in range(n):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / n

    n = max(1, min(200, int(0.005 / max(burst(1), 1e-6))))
    samples, until = [], time.monotonic() + seconds
    while len(samples) < 5 or (time.monotonic() < until and len(samples) < 50):
        samples.append(burst(n))
    return statistics.median(samples)


def measure(torch, kernel, shape, seconds):
    """Forward and backward, seconds. Raises where the library does not take the shape."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    batch, seq, heads, kv_heads, head_dim = shape
    make = lambda n: torch.randn(batch, seq, n, head_dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    q, k, v = make(heads), make(kv_heads), make(kv_heads)
    grouped = {"enable_gqa": True} if heads != kv_heads else {}
    attention = lambda: torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, **grouped
    )
    with sdpa_kernel([getattr(SDPBackend, BACKENDS[kernel])]):
        with torch.no_grad():
            forward = timed(torch, attention, seconds / 2)
        out = attention()
        gradient = torch.randn_like(out)
        backward = timed(torch, lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True), seconds / 2)
    return forward, backward


def self_check(root, program):
    """Made-up rates, ten times apart, through the file to a simulated step: the attention of the plan is what they say."""
    shapes = shapes_of(torch_steps.read_plans(os.path.join(root, "scenarios", "gpu", "plans.yaml")))
    if any(head_dim != HEAD_DIM for *_, head_dim in shapes):
        sys.exit(f"torch_attention: a head is not {HEAD_DIM} wide: {shapes}")
    shape = shapes[0]  # of gpt2.yaml as it stands
    steps = []
    with tempfile.TemporaryDirectory() as folder:
        for tflops in (400.0, 40.0):
            rows = [row(shape, b, flops(shape, b) / (tflops * 1e12), "made up") for b in (False, True)]
            path = os.path.join(folder, f"attention-{tflops:.0f}.yaml")
            write(path, file_text("h100-sxm", "cudnn", rows, {"measured": "made-up: a self-check"}))
            command = [program, "simulate", os.path.join(root, "scenarios", "gpu", "gpt2.yaml"), "--json"]
            command += ["--calibration", path, "--set", "model.attention=cudnn"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "REHEARSE_ROOT": root})
            if done.returncode != 0:
                sys.exit(f"torch_attention: {' '.join(command)}: {done.stderr.strip()}")
            steps.append(json.loads(done.stdout)["step_time_s"])
    layers = torch_steps.MODELS["gpt2-small"]["layers"]
    expected = layers * (flops(shape, False) + flops(shape, True)) * (1 / 40e12 - 1 / 400e12)
    if abs((steps[1] - steps[0]) / expected - 1) > 1e-3:
        sys.exit(f"torch_attention: steps of {steps[0]} and {steps[1]} s, expected {expected} s between them")
    print(f"torch_attention: {len(shapes)} shapes; rows of a file are what a simulation takes")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    parser.add_argument("--plans", default=os.path.join(root, "scenarios", "gpu", "plans.yaml"))
    parser.add_argument("--calibration", help="the device file of this GPU, whose name the measurements are for")
    parser.add_argument("--out", help="a folder for attention-KERNEL.yaml")
    parser.add_argument("--kernels", default="cudnn,sdpa_flash")
    parser.add_argument("--seconds", type=float, default=60, help="in all")
    parser.add_argument("--self-check", action="store_true", help="without PyTorch: files that the program reads")
    parser.add_argument("--root", default=root, help="with --self-check: where scenarios/ is")
    parser.add_argument("--program", help="with --self-check: the rehearse to try")
    a = parser.parse_args()
    if a.self_check:
        return self_check(os.path.abspath(a.root), a.program)
    try:
        import torch
    except ImportError as error:
        print(f"torch_attention: no PyTorch: {error}", file=sys.stderr)
        return 1
    if not torch.cuda.is_available() or not a.calibration or not a.out:
        print("torch_attention: needs a CUDA device, --calibration and --out", file=sys.stderr)
        return 1
    device, kernels = device_name(a.calibration), a.kernels.split(",")
    shapes = shapes_of(torch_steps.read_plans(a.plans))
    rows, failures, until = {k: [] for k in kernels}, 0, time.monotonic() + a.seconds
    for done, shape in enumerate(shapes):
        for kernel in kernels:
            left = (until - time.monotonic()) / (len(kernels) * (len(shapes) - done))
            if left <= 0:
                print(f"{kernel} {shape}: not run: no time left")
                continue
            source = f"cuDNN {torch.backends.cudnn.version()}" if kernel == "cudnn" else f"PyTorch {torch.__version__}"
            try:
                forward, backward = measure(torch, kernel, shape, left)
            except Exception as error:  # noqa: BLE001 - what one library does not take must not end the other
                print(f"{kernel} {shape}: {type(error).__name__}: {error}".replace("\n", " "))
                failures += 1
                continue
            rows[kernel] += [row(shape, False, forward, source), row(shape, True, backward, source)]
            counted = [flops(shape, b) / 2 / s / 1e12 for b, s in ((False, forward), (True, backward))]
            print(f"{kernel} {shape}: forward {forward * 1e6:.1f} us, backward {backward * 1e6:.1f} us; "
                  f"{counted[0]:.0f} and {counted[1]:.0f} TFLOP/s of what causality leaves", flush=True)
            provenance = {"measured": f"scaled_dot_product_attention of PyTorch {torch.__version__} by {kernel} on one GPU",
                          "gpu": torch.cuda.get_device_name(0), "cuda": torch.version.cuda,
                          "cudnn": torch.backends.cudnn.version(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
            write(os.path.join(a.out, f"attention-{kernel}.yaml"), file_text(device, kernel, rows[kernel], provenance))
    return 1 if failures == len(shapes) * len(kernels) else 0


if __name__ == "__main__":
    sys.exit(main())
