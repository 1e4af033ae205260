#!/usr/bin/env python3
"""What tests/gpu/bring_back.sh has to compute.

  bring_back.py device CALIBRATION SHIPPED [ATTENTION...]
                                the calibration as a device of calibrate/devices, on the standard output, with the rows of
                                files of torch_attention.py: its rows of attention then name their library
  bring_back.py tables RECORDS  Markdown tables of what was measured, for the docs
"""

import csv
import json
import os
import re
import sys

SOURCED = ("sms", "memory", "memory_bandwidth", "host_bandwidth", "kernel_time")


def sections(text):
    """[(key, lines)] of a device file: top-level keys with the comment lines above them; what comes first has key ""."""
    found, comment = [("", [])], []
    for line in text.splitlines():
        key = re.match(r"([a-z_]+):", line)
        if key:
            found.append((key.group(1), comment + [line]))
            comment = []
        elif line.startswith("#") or not line.strip():
            comment.append(line)
        else:
            found[-1][1].extend(comment + [line])
            comment = []
    found[-1][1].extend(comment)
    return found


def other_attention(shipped):
    """The shipped device's attention kernels as `others` of a device whose own was measured."""
    lines = next((lines for key, lines in shipped if key == "attention"), [])
    body = [line for line in lines if line.startswith("  ")]
    kernel = next((line.split(":")[1].split("#")[0].strip() for line in body if line.startswith("  kernel:")), "")
    split = next((i for i, line in enumerate(body) if line.startswith("  others:")), len(body))
    others = body[split:] or ["  others:"]
    if kernel:
        own = [line for line in body[:split] if not re.match(r"  (kernel|table):", line)]
        others = [others[0], f"    {kernel}:"] + ["    " + line for line in own] + others[1:]
    return others


def rows_of(lines):
    """Of a section: where its `rows: |` stands, and the rows, the heading first."""
    at = next((i for i, line in enumerate(lines) if line == "  rows: |"), len(lines))
    end = next((i for i in range(at + 1, len(lines)) if not lines[i].startswith("    ")), len(lines))
    return at, [line.strip() for line in lines[at + 1 : end]]


def with_libraries(lines, files, name):
    """The device's section `attention` with the rows that were measured of other libraries, by `library`; those that the
    section lists no rates of are left out."""
    listed = {m.group(1) for line in lines if (m := re.match(r"    ([a-z0-9_]+):", line))}
    more = []
    for path in files:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        kernel = re.search(r"^  kernel: (\S+)", text, re.MULTILINE).group(1)
        of = re.search(r"^measurements_for: (\S+)", text, re.MULTILINE).group(1)
        if of != name:
            sys.exit(f"{path} is of {of}, the calibration of {name}")
        if kernel not in listed:
            print(f"bring_back: {path}: {kernel} has no rates among the device's other libraries: not installed", file=sys.stderr)
            continue
        section = dict(sections(text))["attention"]
        more += [f"{row},{kernel}" for row in rows_of(section)[1][1:]]
    if not more:
        return lines
    at, rows = rows_of(lines)
    heading = rows[0] if rows else "part,causal,batch,seq,heads,kv_heads,head_dim,tflops,source"
    table = [heading + ",library"] + [row + ",-" for row in rows[1:]] + more
    return lines[:at] + ["  rows: |"] + ["    " + row for row in table] + lines[at + 1 + len(rows) :]


def device(calibration, shipped_file, attention):
    with open(calibration, encoding="utf-8") as f:
        text = f.read()
    with open(shipped_file, encoding="utf-8") as f:
        shipped = sections(f.read())
    name = os.path.basename(shipped_file)
    own = re.search(r"^name: *(\S+)", text, re.MULTILINE).group(1)
    out, have = [], set()
    for key, lines in sections(text):
        have.add(key)
        if key in SOURCED and "#" not in lines[-1]:
            lines = lines[:-1] + [lines[-1] + "  # measured or as the driver says; see provenance"]
        if key == "attention" and not any(line.startswith("  others:") for line in lines):
            at = next((i for i, line in enumerate(lines) if line.startswith("  rows:")), len(lines))
            lines = lines[:at] + [f"  # {name}'s, of other libraries"] + other_attention(shipped) + lines[at:]
        if key == "attention":
            lines = with_libraries(lines, attention, own)
        if key == "gemm" and not any(line.startswith("  unaligned:") for line in lines):
            unaligned = next((line for line in dict(shipped).get("gemm", []) if line.startswith("  unaligned:")), None)
            if unaligned:
                at = next(i for i, line in enumerate(lines) if line.startswith("gemm:")) + 1
                lines = lines[:at] + [unaligned.split("#")[0].rstrip() + f"  # {name}'s"] + lines[at:]
        out += lines
    for key, lines in shipped:
        if key == "power" and key not in have:
            out += ["", f"# {name}'s: a calibration does not measure it."] + [line for line in lines if line.strip()]
    print("\n".join(out))


def table(head, rows):
    if not rows:
        return
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def read_steps(path):
    with open(path, encoding="utf-8", newline="") as f:
        return [row for row in csv.DictReader(f) if row["class"] == "step"]


def errors(rows):
    found = sorted((abs(float(r["error"])), r["id"]) for r in rows if r["measured_s"])
    if not found:
        return ""
    return f"{len(found)} plans: median {found[len(found) // 2][0]:.1%}, worst {found[-1][0]:.1%} ({found[-1][1]})"


def steps_table(path, title):
    rows = read_steps(path)
    print(f"**{title}**\n")
    shown = []
    for r in rows:
        if r["measured_s"]:
            cells = [r["id"], f"{float(r['measured_s']) * 1e3:.2f} ms", f"{float(r['simulated_s']) * 1e3:.2f} ms", f"{float(r['error']):+.1%}"]
        else:
            cells = [r["id"], "-", "-", r["reason"]]
        shown.append(cells + ([r["held_out"]] if "held_out" in r else []))
    table(["plan", "measured", "simulated", "error"] + (["held out"] if rows and "held_out" in rows[0] else []), shown)
    print(f"All: {errors(rows)}")
    held = [r for r in rows if r.get("held_out") in ("yes", "true", "1")]
    if held:
        print(f"Held out of the calibration: {errors(held)}")
    print()


def torch_table(path, ours):
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    kinds = [k for k in ("eager-autocast", "eager-bf16", "compiled-autocast", "compiled-bf16") if any(k in p for p in data["plans"].values())]
    print(f"**PyTorch {data['torch']}, CUDA {data['cuda']}, {data['gpu']}: tokens/s, and ours as a share of it**\n")
    rows, ratios = [], {}
    for plan, results in data["plans"].items():
        cells = [plan, f"{ours[plan]:.2f} ms" if plan in ours else "-"]
        for kind in kinds:
            r = results.get(kind, {})
            if "step_s" not in r:
                cells.append(r.get("error", "-")[:40])
                continue
            cells.append(f"{r['tokens_per_s']:,.0f}")
            if plan in ours:
                share = r["step_s"] * 1e3 / ours[plan]
                ratios.setdefault(kind, []).append(share)
                cells[-1] += f" ({share:.2f})"
        kernels = {r["attention_kernel"] for r in results.values() if r.get("attention_kernel")}
        rows.append(cells + [", ".join(sorted(k[:40] for k in kernels)) or "-"])
    table(["plan", "our step"] + kinds + ["attention"], rows)
    for kind in kinds:
        if kind in ratios:
            found = sorted(ratios[kind])
            print(f"ours/{kind}: median {found[len(found) // 2]:.2f}, {found[0]:.2f} to {found[-1]:.2f}, {len(found)} plans")
    print()


def bench_tables(folder):
    for file, counter, unit, scale in (("flash.json", "FLOP/s", "TFLOP/s", 1e12), ("kernels.json", "of_copy", "of a copy", 1)):
        path = os.path.join(folder, file)
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as f:
            runs = [b for b in json.load(f).get("benchmarks", []) if counter in b]
        print(f"**{file}: {len(runs)} kernels**\n")
        table(["kernel", "time", unit], [[b["name"].split("/iterations")[0], f"{b['real_time']:.1f} us", f"{b[counter] / scale:.3g}"] for b in runs])


def tables(folder):
    ours = {}
    for file, title in (("ledger.csv", "Steps of one GPU"), ("walk_ledger.csv", "Steps of one GPU, calibrated anew")):
        path = os.path.join(folder, file)
        if os.path.exists(path):
            steps_table(path, title)
            ours.update({r["id"]: float(r["measured_s"]) * 1e3 for r in read_steps(path) if r["measured_s"]})
    if os.path.exists(os.path.join(folder, "torch.json")):
        torch_table(os.path.join(folder, "torch.json"), ours)
    bench_tables(folder)
    print("**Parts, with the clock and the power they ran at**\n")
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".txt") or file == "counters.txt":
            continue
        with open(os.path.join(folder, file), encoding="utf-8") as f:
            for line in f:
                if re.match(r"(PASSED|FAILED|TIMEOUT|SKIPPED|gpu:|packed:)", line):
                    print(f"    {file[:-4]}: {line.rstrip()}")


def main():
    if len(sys.argv) >= 4 and sys.argv[1] == "device":
        device(sys.argv[2], sys.argv[3], sys.argv[4:])
    elif len(sys.argv) == 3 and sys.argv[1] == "tables":
        tables(sys.argv[2])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
