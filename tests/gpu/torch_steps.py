#!/usr/bin/env python3
"""The steps of scenarios/gpu/plans.yaml in PyTorch, eager and compiled, on one GPU.

The same models, batches, lengths and precision as `rehearse execute` performs: GPT-2 (layer norm, learned positions, tied
embeddings, biases) and Llama (RMS norm, rotary positions, SwiGLU, grouped queries), scaled_dot_product_attention, AdamW
(fused), gradients clipped to a norm of 1; the vocabulary as the plan has it. Four kinds of step:
eager and compiled, each in bf16 by autocast over fp32 parameters, and with bf16 weights and gradients whose fp32 masters the
optimizer keeps, as ours does. Prints tokens/s of each, their ratio to what `rehearse validate --gpu` measured (--ledger),
which attention kernel ran, and where the difference goes by class of kernel (torch.profiler).

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

sys.dont_write_bytecode = True  # torch_models lies in a checkout
from torch_models import MODELS, make_model, parameter_count

PREDICTED = "eager-autocast"  # the kind that `framework: torch-ddp` predicts
KINDS = ("eager-autocast", "eager-bf16", "compiled-bf16", "compiled-autocast")  # in the order in which they run


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
                vocab=int(keys.get("model.vocab", 0)),  # rows that the plan pads the vocabulary to, 0: none
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
    ("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<BinaryFunctor<c10::BFloat16>>>", "elementwise"),
)


def kernel_class(name):
    lower = name.lower().replace("nocast", "")  # how PyTorch's binary kernels are called that cast nothing
    for cls, words in CLASSES:
        if any(word in lower for word in words):
            return cls
    return "other kernels"


def make_optimizer(torch, model, masters):
    """AdamW over the parameters, or over fp32 masters of bf16 ones; a function that clips, steps and clears gradients."""
    settings = dict(lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    own = list(model.parameters())
    kept = [torch.nn.Parameter(p.detach().float()) for p in own] if masters else own
    optimizer = torch.optim.AdamW(kept, **settings)

    def update():
        if masters:
            for master, p in zip(kept, own):
                master.grad = p.grad.float()
        torch.nn.utils.clip_grad_norm_(kept, 1.0)
        optimizer.step()
        if masters:
            with torch.no_grad():
                torch._foreach_copy_(own, kept)
        for p in own + kept:
            p.grad = None

    return update


def make_step(torch, plan, kind):
    """One step of the plan as a function without arguments."""
    how, precision = kind.split("-")
    device = torch.device("cuda")
    torch.manual_seed(1)
    shape = dict(MODELS[plan["model"]])
    shape["vocab"] = plan["vocab"] or shape["vocab"]
    with torch.device(device):  # drawn there: on the host 1.5 billion parameters take a minute
        model = make_model(torch, shape, plan["recompute"])
    if precision == "bf16":
        model = model.to(torch.bfloat16)
    count = sum(p.numel() for p in model.parameters())
    if count != parameter_count(shape):
        raise RuntimeError(f"{count} parameters, expected {parameter_count(shape)}")
    update = make_optimizer(torch, model, precision == "bf16")
    forward = torch.compile(model) if how == "compiled" else model
    micro = plan["global_batch"] // plan["micro_batch"]
    vocab = MODELS[plan["model"]]["vocab"]  # padding is never a target
    tokens = torch.randint(vocab, (micro, plan["micro_batch"], plan["seq"]), device=device)
    targets = torch.randint(vocab, (micro, plan["micro_batch"], plan["seq"]), device=device)

    def step():
        for i in range(micro):
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "autocast"):
                loss = forward(tokens[i], targets[i]) / micro
            loss.backward()
        update()

    return step


def run_plan(torch, plan, kind, seconds, kernels=None):
    """Medians over the steps that fit into `seconds`, after warm-up; memory; device time by class of one step."""
    step = make_step(torch, plan, kind)
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
    try:
        result.update(profile_step(torch, step, kernels))
    except Exception as error:  # noqa: BLE001 - what was timed stays
        result["profile_error"] = f"{type(error).__name__}: {error}".replace("\n", " ")
    return result


def profile_step(torch, step, path=None):
    """Of one step: seconds on the device by class, and the attention kernel that took the most of them; into the file `path`, where
    one is given, every kernel in the order in which they ran."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        step()
        torch.cuda.synchronize()
    classes, kernels, lines = {}, {}, []
    for event in profiler.events():
        if "cuda" not in str(event.device_type).lower():
            continue
        duration = getattr(event, "self_device_time_total", None)
        if duration is None:
            duration = event.self_cuda_time_total
        cls = kernel_class(event.name)
        classes[cls] = classes.get(cls, 0.0) + duration * 1e-6
        lines.append((event.time_range.start, f"{duration:.2f}\t{cls}\t{event.name[:300]}\n"))
        if cls == "attention":
            kernels[event.name] = kernels.get(event.name, 0.0) + duration * 1e-6
    if path:
        with open(path, "w", encoding="utf-8") as f:
            f.write("us\tclass\tkernel\n" + "".join(line for _, line in sorted(lines)))
    return dict(classes=classes, attention_kernel=max(kernels, key=kernels.get) if kernels else None)


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
        try:
            with open(os.path.join(place, "result.json"), encoding="utf-8") as f:
                return json.load(f)["step_time_s"]
        except (OSError, ValueError, KeyError) as error:
            print(f"# {plan['id']}: not predicted: {error}")
            return None


def report(plan, kinds, ours):
    """A few lines on one plan."""
    lines = []
    tokens = plan["global_batch"] * plan["seq"]
    own = ours.get(plan["id"])
    for kind, r in kinds.items():
        if "error" in r:
            lines.append(f"{plan['id']:36s} {kind:17s} failed: {r['error'][:160]}")
            continue
        text = f"{plan['id']:36s} {kind:17s} {r['step_s'] * 1e3:8.2f} ms {r['tokens_per_s']:9.0f} tokens/s"
        text += f" {r['peak_bytes'] / 2**30:6.2f} GiB"
        if own:
            text += f"  ours/torch {tokens / own['step'] / r['tokens_per_s']:.3f}"
        if r.get("predicted_s"):
            text += f"  predicted {r['predicted_s'] * 1e3:.2f} ms ({r['predicted_s'] / r['step_s'] - 1:+.1%})"
        lines.append(text)
        if r.get("attention_kernel"):
            lines.append(f"    attention: {r['attention_kernel'][:150]}")
        if "profile_error" in r:
            lines.append(f"    not profiled: {r['profile_error'][:150]}")
        elif own:
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
    for kind in KINDS:
        ratios = sorted(
            results[p["id"]][kind]["step_s"] / ours[p["id"]]["step"]
            for p in plans
            if "step_s" in results.get(p["id"], {}).get(kind, {}) and p["id"] in ours
        )
        if ratios:
            print(f"ours/torch {kind}: median {ratios[len(ratios) // 2]:.3f}, {ratios[0]:.3f} to {ratios[-1]:.3f}, {len(ratios)} plans")
    eager = [r[PREDICTED] for r in results.values() if r.get(PREDICTED, {}).get("predicted_s")]
    errors = sorted(abs(r["predicted_s"] / r["step_s"] - 1) for r in eager)
    if errors:
        print(f"torch {PREDICTED} predicted within {errors[len(errors) // 2]:.1%} in the median, worst {errors[-1]:.1%}, {len(errors)} plans")


def earlier(path, done):
    """What an earlier call on the same kind of machine has measured: plans that failed are tried again."""
    if not path or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as f:
        before = json.load(f)
    if any(before.get(key) != done[key] for key in ("torch", "cuda", "gpu")):
        print(f"# {path}: of {before.get('gpu')} and PyTorch {before.get('torch')}: measured anew")
        return {}
    kept = {i: {k: r for k, r in kinds.items() if k in KINDS and "error" not in r} for i, kinds in before["plans"].items()}
    return {i: kinds for i, kinds in kept.items() if kinds}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    parser.add_argument("--plans", default=os.path.join(root, "scenarios", "gpu", "plans.yaml"))
    parser.add_argument("--out", help="a JSON file of everything measured, rewritten after each plan")
    parser.add_argument("--ledger", help="ledger.csv of `rehearse validate --gpu`, to compare with")
    parser.add_argument("--filter", default="", help="only plans whose id contains this")
    parser.add_argument("--seconds", type=float, default=200, help="in all; what does not fit is named")
    parser.add_argument("--each", type=float, default=2, help="seconds of steps of each plan and kind")
    parser.add_argument("--kernels", help="a folder for the kernels of one step of each plan and kind, in their order")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--self-check", action="store_true", help="without PyTorch: the models' parameter counts")
    parser.add_argument("--root", default=root, help="with --self-check: where scenarios/ is")
    parser.add_argument("--program", help="the rehearse to compare with (--self-check), or that predicts eager steps")
    parser.add_argument("--calibration", help="a device file of this GPU, to predict eager steps from")
    parser.add_argument("--libraries", help="LD_LIBRARY_PATH of --program")
    a = parser.parse_args()
    kinds = a.kinds.split(",")
    if set(kinds) - set(KINDS):
        parser.error(f"--kinds is '{a.kinds}', expected some of {','.join(KINDS)}")
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
    if a.kernels:
        os.makedirs(a.kernels, exist_ok=True)
    ours = read_ledger(a.ledger)
    plans = [p for p in read_plans(a.plans) if a.filter in p["id"]]
    done = dict(torch=torch.__version__, cuda=torch.version.cuda, gpu=torch.cuda.get_device_name(0))
    done["plans"] = earlier(a.out, done)
    print(f"PyTorch {done['torch']}, CUDA {done['cuda']}, {done['gpu']}")
    began = time.monotonic()
    for kind in kinds:  # eager of all plans before the compiler, which takes its time
        compiled = kind.startswith("compiled")
        for plan in one_of_each_model_first(plans) if compiled else plans:
            if kind in done["plans"].get(plan["id"], {}):
                print(f"{plan['id']:36s} {kind:17s} measured in an earlier call")
                continue
            if time.monotonic() - began > a.seconds:
                print(f"{plan['id']:36s} {kind:17s} not run: no time left")
                continue
            try:
                kernels = os.path.join(a.kernels, f"{plan['id']}-{kind}.tsv") if a.kernels else None
                r = run_plan(torch, plan, kind, a.each, kernels)
            except Exception as error:  # noqa: BLE001 - one plan out of memory must not end the others
                r = dict(error=f"{type(error).__name__}: {error}".replace("\n", " "))
            if kind == PREDICTED and "error" not in r:
                r["predicted_s"] = predict(plan, a.program, a.calibration, a.libraries)
            gc.collect()
            torch.cuda.empty_cache()
            if compiled:
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
