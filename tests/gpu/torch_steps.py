#!/usr/bin/env python3
"""The steps of scenarios/gpu/plans.yaml in PyTorch, eager and compiled, on one GPU.

The same models, batches, lengths and precision as `rehearse execute` performs: GPT-2 (layer norm, learned positions, tied
embeddings, biases) and Llama (RMS norm, rotary positions, SwiGLU, grouped queries), scaled_dot_product_attention, bf16 by
autocast over fp32 parameters, AdamW (fused), gradients clipped to a norm of 1. Prints tokens/s of each, their ratio to what
`rehearse validate --gpu` measured (--ledger), and where the difference goes by class of kernel (torch.profiler).

Without PyTorch, --self-check counts every parameter from the shapes below and compares with our models.
"""

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
import time

# Shapes as scenarios/models has them.
MODELS = {
    "gpt2-small": dict(family="gpt", layers=12, hidden=768, heads=12, vocab=50257, max_seq=1024),
    "gpt2-medium": dict(family="gpt", layers=24, hidden=1024, heads=16, vocab=50257, max_seq=1024),
    "gpt2-large": dict(family="gpt", layers=36, hidden=1280, heads=20, vocab=50257, max_seq=1024),
    "gpt2-xl": dict(family="gpt", layers=48, hidden=1600, heads=25, vocab=50257, max_seq=1024),
    "tinyllama-1.1b": dict(family="llama", layers=22, hidden=2048, heads=32, kv_heads=4, ffn=5632, vocab=32000, max_seq=2048),
}


def parameter_shapes(m):
    """Name and shape of every parameter; the modules below are checked against it."""
    h, v = m["hidden"], m["vocab"]
    shapes = [("embedding", (v, h))]
    if m["family"] == "gpt":
        shapes.append(("position", (m["max_seq"], h)))
        for i in range(m["layers"]):
            for name, out, inner in (("qkv", 3 * h, h), ("proj", h, h), ("up", 4 * h, h), ("down", h, 4 * h)):
                shapes += [(f"layer{i}.{name}.weight", (out, inner)), (f"layer{i}.{name}.bias", (out,))]
            for norm in ("norm1", "norm2"):
                shapes += [(f"layer{i}.{norm}.weight", (h,)), (f"layer{i}.{norm}.bias", (h,))]
        shapes += [("norm.weight", (h,)), ("norm.bias", (h,))]  # the head is the embedding
    else:
        d = h // m["heads"]
        for i in range(m["layers"]):
            shapes += [(f"layer{i}.qkv.weight", ((m["heads"] + 2 * m["kv_heads"]) * d, h)), (f"layer{i}.proj.weight", (h, h))]
            shapes += [(f"layer{i}.up.weight", (2 * m["ffn"], h)), (f"layer{i}.down.weight", (h, m["ffn"]))]
            shapes += [(f"layer{i}.norm1.weight", (h,)), (f"layer{i}.norm2.weight", (h,))]
        shapes += [("norm.weight", (h,)), ("head.weight", (v, h))]
    return shapes


def parameter_count(m):
    total = 0
    for _, shape in parameter_shapes(m):
        size = 1
        for n in shape:
            size *= n
        total += size
    return total


def read_plans(path):
    """plans.yaml without a YAML library: its plans are one line each. [(id, settings)], batch and length as numbers."""
    plans = []
    for line in open(path, encoding="utf-8"):
        found = re.match(r"\s*- \{id: ([^,]+), scenario: ([^,]+), set: \[(.*)\]\}\s*$", line)
        if not found:
            continue
        keys = dict(item.strip().split("=", 1) for item in found.group(3).split(","))
        plans.append(
            dict(
                id=found.group(1),
                scenario=found.group(2),
                settings=[item.strip() for item in found.group(3).split(",")],
                model=keys.get("model", "tinyllama-1.1b" if found.group(2) == "llama.yaml" else "gpt2-small"),
                micro_batch=int(keys["plan.micro_batch"]),
                global_batch=int(keys["training.global_batch"]),
                seq=int(keys["training.seq_len"]),
                recompute=keys.get("plan.recompute", "none") == "full",
            )
        )
    if not plans:
        sys.exit(f"torch_steps: no plans in {path}")
    return plans


def self_check(root, program):
    """Parameter counts against the numbers that scenarios/models states, and against the program's own list."""
    problems = []
    listed = {}
    if program:
        text = subprocess.run([program, "list", "models", "--json"], capture_output=True, text=True, check=False).stdout
        try:
            data = json.loads(text)
            rows = data if isinstance(data, list) else next(v for v in data.values() if isinstance(v, list))
            listed = {row.get("name", row.get("model")): row.get("parameters") for row in rows}
        except (ValueError, StopIteration):
            problems.append(f"{program} list models --json: not understood")
    for name, m in MODELS.items():
        count = parameter_count(m)
        stated = re.search(r"([\d,]+) parameters", open(os.path.join(root, "scenarios", "models", name + ".yaml"), encoding="utf-8").read())
        if not stated or int(stated.group(1).replace(",", "")) != count:
            problems.append(f"{name}: {count} parameters here, its file states {stated.group(1) if stated else 'none'}")
        if program and name in listed and isinstance(listed[name], int) and listed[name] != count:
            problems.append(f"{name}: {count} parameters here, the program counts {listed[name]}")
        if program and name not in listed:
            problems.append(f"{name}: the program does not list it")
        print(f"{name}: {count:,} parameters")
    plans = read_plans(os.path.join(root, "scenarios", "gpu", "plans.yaml"))
    for plan in plans:
        if plan["model"] not in MODELS:
            problems.append(f"{plan['id']}: model {plan['model']} is not defined here")
        if plan["global_batch"] % plan["micro_batch"]:
            problems.append(f"{plan['id']}: batch {plan['global_batch']} in micro-batches of {plan['micro_batch']}")
    for kernel, expected in KERNEL_EXAMPLES:
        if kernel_class(kernel) != expected:
            problems.append(f"kernel {kernel}: class {kernel_class(kernel)}, expected {expected}")
    print(f"{len(plans)} plans, {len(KERNEL_EXAMPLES)} kernel names")
    for problem in problems:
        print("torch_steps:", problem, file=sys.stderr)
    return 1 if problems else 0


# Classes as `rehearse compare` names them; the first that matches a kernel's name, in lower case.
CLASSES = (
    ("attention", ("flash", "fmha", "sdpa", "attention", "mha_")),
    ("gemm", ("gemm", "cutlass", "nvjet", "xmma", "cublas", "splitk", "gemv")),
    ("optimizer", ("adam", "multi_tensor", "foreach", "lpnorm", "normtwo")),
    ("norm", ("layer_norm", "layernorm", "rms_norm", "gammabeta", "rmsnorm")),
    ("cross-entropy", ("softmax", "nll_loss", "cross_entropy")),
    ("embedding", ("embedding", "indexselect", "index_put", "indexing_backward", "sort", "radix")),
    ("activation", ("gelu", "silu", "relu")),
    ("compiled", ("triton_",)),  # several of the above, fused by the compiler
    ("copies", ("copy", "memcpy", "memset", "fill", "cat", "cast")),
    ("elementwise", ("elementwise", "reduce", "vectorized")),
)
KERNEL_EXAMPLES = (
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "gemm"),
    ("nvjet_hsh_256x128_64x4_2x1_v_bz_coopA_TNT", "gemm"),
    ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>", "attention"),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7", "attention"),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>", "norm"),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimizer"),
    ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float>", "cross-entropy"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>", "activation"),
    ("triton_poi_fused_add_mul_silu_3", "activation"),
    ("triton_red_fused_0", "compiled"),
    ("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>", "copies"),
    ("Memcpy DtoD (Device -> Device)", "copies"),
)


def kernel_class(name):
    lower = name.lower()
    for cls, words in CLASSES:
        if any(word in lower for word in words):
            return cls
    return "other kernels"


def make_model(torch, m, recompute):
    """nn.Module whose forward takes tokens [batch, seq] and targets, and returns the mean loss."""
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    hidden, heads = m["hidden"], m["heads"]
    kv_heads, dim = m.get("kv_heads", m["heads"]), m["hidden"] // m["heads"]
    gpt = m["family"] == "gpt"

    class RmsNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(hidden))

        def forward(self, x):
            return F.rms_norm(x, (hidden,), self.weight.to(x.dtype), 1e-5)

    def rotate(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1 = nn.LayerNorm(hidden) if gpt else RmsNorm()
            self.norm2 = nn.LayerNorm(hidden) if gpt else RmsNorm()
            self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * dim, bias=gpt)
            self.proj = nn.Linear(hidden, hidden, bias=gpt)
            inner = 4 * hidden if gpt else m["ffn"]
            self.up = nn.Linear(hidden, inner if gpt else 2 * inner, bias=gpt)
            self.down = nn.Linear(inner, hidden, bias=gpt)

        def forward(self, x, cos, sin):
            batch, seq, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).split((heads * dim, kv_heads * dim, kv_heads * dim), dim=-1)
            q = q.view(batch, seq, heads, dim).transpose(1, 2)
            k = k.view(batch, seq, kv_heads, dim).transpose(1, 2)
            v = v.view(batch, seq, kv_heads, dim).transpose(1, 2)
            if not gpt:
                q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv_heads != heads)
            x = x + self.proj(out.transpose(1, 2).reshape(batch, seq, hidden))
            y = self.up(self.norm2(x))
            if gpt:
                y = F.gelu(y, approximate="tanh")
            else:
                gate, up = y.chunk(2, dim=-1)
                y = F.silu(gate) * up
            return x + self.down(y)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(m["vocab"], hidden)
            if gpt:
                self.position = nn.Embedding(m["max_seq"], hidden)
            self.layers = nn.ModuleList(Layer() for _ in range(m["layers"]))
            self.norm = nn.LayerNorm(hidden) if gpt else RmsNorm()
            self.head = nn.Linear(hidden, m["vocab"], bias=False)
            if gpt:
                self.head.weight = self.embedding.weight
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)
            angles = torch.outer(torch.arange(m["max_seq"]).float(), 10000.0 ** (-torch.arange(0, dim, 2) / dim))
            self.register_buffer("cos", angles.cos().to(torch.bfloat16), persistent=False)
            self.register_buffer("sin", angles.sin().to(torch.bfloat16), persistent=False)

        def forward(self, tokens, targets):
            seq = tokens.shape[1]
            x = self.embedding(tokens)
            if gpt:
                x = x + self.position(torch.arange(seq, device=tokens.device))
            x = x.to(torch.bfloat16)  # the residual stream, as ours
            cos, sin = self.cos[:seq], self.sin[:seq]
            for layer in self.layers:
                x = checkpoint(layer, x, cos, sin, use_reentrant=False) if recompute else layer(x, cos, sin)
            logits = self.head(self.norm(x))
            return F.cross_entropy(logits.view(-1, m["vocab"]).float(), targets.view(-1))

    return Model()


def run_plan(torch, plan, compiled, seconds):
    """Medians over the steps that fit into `seconds`, after warm-up; memory; device time by class of one step."""
    device = torch.device("cuda")
    torch.manual_seed(1)
    with torch.device(device):  # drawn there: on the host 1.5 billion parameters take a minute
        model = make_model(torch, MODELS[plan["model"]], plan["recompute"])
    count = sum(p.numel() for p in model.parameters())
    if count != parameter_count(MODELS[plan["model"]]):
        raise RuntimeError(f"{count} parameters, expected {parameter_count(MODELS[plan['model']])}")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    forward = torch.compile(model) if compiled else model
    micro = plan["global_batch"] // plan["micro_batch"]
    vocab = MODELS[plan["model"]]["vocab"]
    tokens = torch.randint(vocab, (micro, plan["micro_batch"], plan["seq"]), device=device)
    targets = torch.randint(vocab, (micro, plan["micro_batch"], plan["seq"]), device=device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        for i in range(micro):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = forward(tokens[i], targets[i]) / micro
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    began = time.monotonic()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    warm_up = time.monotonic() - began
    torch.cuda.reset_peak_memory_stats()
    times = []
    began = time.monotonic()
    while len(times) < 5 or (len(times) < 100 and time.monotonic() - began < seconds):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    times.sort()
    result = dict(
        step_s=times[len(times) // 2],
        fastest_s=times[0],
        slowest_s=times[-1],
        steps=len(times),
        warm_up_s=warm_up,
        peak_bytes=torch.cuda.max_memory_allocated(),
    )
    result["tokens_per_s"] = plan["global_batch"] * plan["seq"] / result["step_s"]
    result["classes"] = profile_step(torch, step)
    return result


def profile_step(torch, step):
    """Seconds on the device by class, of one step."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        step()
        torch.cuda.synchronize()
    classes = {}
    for event in profiler.events():
        if "cuda" not in str(event.device_type).lower():
            continue
        duration = getattr(event, "self_device_time_total", None)
        if duration is None:
            duration = event.self_cuda_time_total
        cls = kernel_class(event.name)
        classes[cls] = classes.get(cls, 0.0) + duration * 1e-6
    return classes


def read_ledger(path):
    """{id: {class: measured seconds}} of `rehearse validate --gpu`; the class "step" is the whole."""
    ours = {}
    if path and os.path.exists(path):
        import csv

        for row in csv.DictReader(open(path, encoding="utf-8", newline="")):
            if row["measured_s"]:
                ours.setdefault(row["id"], {})[row["class"]] = float(row["measured_s"])
    return ours


def predict(plan, program, calibration, libraries):
    """Seconds that `rehearse simulate` expects of PyTorch's eager step, from our calibration of this GPU; None if it cannot."""
    if not program or not calibration or not os.path.exists(calibration):
        return None
    environment = dict(os.environ)
    if libraries:
        environment["LD_LIBRARY_PATH"] = libraries
    scenario = os.path.join(environment.get("REHEARSE_ROOT", "."), "scenarios", "gpu", plan["scenario"])
    with tempfile.TemporaryDirectory() as place:
        command = [program, "simulate", scenario, "--calibration", calibration, "-o", place]
        for setting in plan["settings"] + ["framework=torch-ddp"]:
            command += ["--set", setting]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0:
            print(f"# {plan['id']}: not predicted: {done.stderr.strip().splitlines()[-1:]}")
            return None
        with open(os.path.join(place, "result.json"), encoding="utf-8") as f:
            return json.load(f)["step_time_s"]


def report(plan, kinds, ours):
    """A few lines on one plan."""
    lines = []
    tokens = plan["global_batch"] * plan["seq"]
    own = ours.get(plan["id"])
    for kind, r in kinds.items():
        if "error" in r:
            lines.append(f"{plan['id']:36s} {kind:9s} failed: {r['error'][:160]}")
            continue
        text = f"{plan['id']:36s} {kind:9s} {r['step_s'] * 1e3:8.2f} ms {r['tokens_per_s']:9.0f} tokens/s"
        text += f" {r['peak_bytes'] / 2**30:6.2f} GiB"
        if own:
            text += f"  ours/torch {tokens / own['step'] / r['tokens_per_s']:.3f}"
        if r.get("predicted_s"):
            text += f"  predicted {r['predicted_s'] * 1e3:.2f} ms ({r['predicted_s'] / r['step_s'] - 1:+.1%})"
        lines.append(text)
        if own:
            names = sorted((set(r["classes"]) | set(own)) - {"step"})
            gaps = [(own.get(n, 0.0) - r["classes"].get(n, 0.0), n) for n in names]
            rest = (own["step"] - sum(own.get(n, 0.0) for n in names)) - (r["step_s"] - sum(r["classes"].values()))
            gaps = sorted(gaps + [(rest, "no kernel running")], key=lambda g: -abs(g[0]))[:4]
            lines.append("    ours less torch: " + ", ".join(f"{n} {g * 1e3:+.2f} ms" for g, n in gaps))
    return lines


def one_of_each_model_first(plans):
    first = {}
    for plan in plans:
        first.setdefault(plan["model"], plan)
    return list(first.values()) + [p for p in plans if first[p["model"]] is not p]


def print_totals(results, plans, ours):
    """Medians over the plans: our tokens/s to PyTorch's, and how far its predicted eager step was off."""
    for kind in ("eager", "compiled"):
        ratios = sorted(
            results[p["id"]][kind]["step_s"] / ours[p["id"]]["step"]
            for p in plans
            if "step_s" in results.get(p["id"], {}).get(kind, {}) and p["id"] in ours
        )
        if ratios:
            print(f"ours/torch {kind}: median {ratios[len(ratios) // 2]:.3f}, {ratios[0]:.3f} to {ratios[-1]:.3f}, {len(ratios)} plans")
    eager = [r["eager"] for r in results.values() if r.get("eager", {}).get("predicted_s")]
    errors = sorted(abs(r["predicted_s"] / r["step_s"] - 1) for r in eager)
    if errors:
        print(f"torch eager predicted within {errors[len(errors) // 2]:.1%} in the median, worst {errors[-1]:.1%}, {len(errors)} plans")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    parser.add_argument("--plans", default=os.path.join(root, "scenarios", "gpu", "plans.yaml"))
    parser.add_argument("--out", help="a JSON file of everything measured, rewritten after each plan")
    parser.add_argument("--ledger", help="ledger.csv of `rehearse validate --gpu`, to compare with")
    parser.add_argument("--filter", default="", help="only plans whose id contains this")
    parser.add_argument("--seconds", type=float, default=200, help="in all; what does not fit is named")
    parser.add_argument("--each", type=float, default=2, help="seconds of steps of each plan and kind")
    parser.add_argument("--kinds", default="eager,compiled")
    parser.add_argument("--self-check", action="store_true", help="without PyTorch: the models' parameter counts")
    parser.add_argument("--root", default=root, help="with --self-check: where scenarios/ is")
    parser.add_argument("--program", help="the rehearse to compare with (--self-check), or that predicts eager steps")
    parser.add_argument("--calibration", help="a device file of this GPU, to predict eager steps from")
    parser.add_argument("--libraries", help="LD_LIBRARY_PATH of --program")
    a = parser.parse_args()
    if a.self_check:
        return self_check(a.root, a.program)
    try:
        import torch
    except ImportError as error:
        print(f"torch_steps: no PyTorch: {error}", file=sys.stderr)
        return 1
    if not torch.cuda.is_available():
        print("torch_steps: no CUDA device", file=sys.stderr)
        return 1
    torch.backends.cuda.matmul.allow_tf32 = False
    ours = read_ledger(a.ledger)
    plans = [p for p in read_plans(a.plans) if a.filter in p["id"]]
    done = dict(torch=torch.__version__, cuda=torch.version.cuda, gpu=torch.cuda.get_device_name(0), plans={})
    print(f"PyTorch {done['torch']}, CUDA {done['cuda']}, {done['gpu']}")
    began = time.monotonic()
    for kind in a.kinds.split(","):  # eager of all plans before the compiler, which takes its time
        for plan in plans if kind == "eager" else one_of_each_model_first(plans):
            if time.monotonic() - began > a.seconds:
                print(f"{plan['id']:36s} {kind:9s} not run: no time left")
                continue
            try:
                r = run_plan(torch, plan, kind == "compiled", a.each)
            except Exception as error:  # noqa: BLE001 - one plan out of memory must not end the others
                r = dict(error=f"{type(error).__name__}: {error}".replace("\n", " "))
            if kind == "eager" and "error" not in r:
                r["predicted_s"] = predict(plan, a.program, a.calibration, a.libraries)
            gc.collect()
            torch.cuda.empty_cache()
            if kind == "compiled":
                torch._dynamo.reset()
            done["plans"].setdefault(plan["id"], {})[kind] = r
            for line in report(plan, {kind: r}, ours):
                print(line, flush=True)
            if a.out:
                with open(a.out + ".part", "w", encoding="utf-8") as f:
                    json.dump(done, f, indent=1)
                os.replace(a.out + ".part", a.out)
    print_totals(done["plans"], plans, ours)
    return 0


if __name__ == "__main__":
    sys.exit(main())
