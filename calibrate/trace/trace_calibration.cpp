#include "calibrate/trace/trace_calibration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "calibrate/device_text.h"
#include "calibrate/made.h"
#include "calibrate/statistics.h"
#include "sim/base/collective_words.h"
#include "sim/base/diagnostics.h"

namespace rehearse::calibrate::trace {
namespace {

constexpr std::size_t kEnough = 3;  // samples that ran alone; a judgement
constexpr std::size_t kReasons = 12;

struct Timed {
  Summary time;
  bool beside = false;
};

Timed timed(const Samples& samples) {
  if (samples.alone.size() >= kEnough || samples.beside.empty()) return {summarize(samples.alone), false};
  std::vector<double> all = samples.alone;
  all.insert(all.end(), samples.beside.begin(), samples.beside.end());
  return {summarize(all), true};
}

// By process group and file: the least over files, call by call, where every file of a group has as many calls.
double collective_time(const std::map<std::string, std::map<int, std::vector<double>>>& groups) {
  std::vector<double> matched, alone;
  for (const auto& [group, files] : groups) {
    const std::size_t calls = files.begin()->second.size();
    const bool alike = files.size() > 1 &&
                       std::all_of(files.begin(), files.end(), [&](const auto& f) { return f.second.size() == calls; });
    if (alike) {
      for (std::size_t i = 0; i < calls; ++i) {
        double least = files.begin()->second[i];
        for (const auto& [file, list] : files) least = std::min(least, list[i]);
        matched.push_back(least);
      }
    } else {
      for (const auto& [file, list] : files) alone.insert(alone.end(), list.begin(), list.end());
    }
  }
  return matched.empty() ? summarize(alone).p10_s : summarize(matched).p50_s;
}

// To the picosecond, as simulated time is.
std::string us(double seconds) {
  return fmt::format("{}", std::round(seconds * 1e12) / 1e6);
}

std::string product_row(const ProductShape& p, const Summary& t) {
  return fmt::format("{},-,-,-,1,-,{},{},-,-,{},{},{},no,-", key_cells(p.key), us(t.p50_s), us(t.p50_s), us(t.p10_s),
                     us(t.p90_s), t.repetitions);
}

// Without its layout: by its sizes alone, as tables of products have them.
std::string gemm_row(const ProductShape& p, const Summary& t) {
  const cost::ProductKey& k = p.key;
  const double flops = 2.0 * static_cast<double>(k.m) * static_cast<double>(k.n) * static_cast<double>(k.k);
  return fmt::format("{},{},{},{},{},trace", name_of(k.dtype), k.m, k.n, k.k, flops / t.p50_s / 1e12);
}

// All keys counted, as program::work_of does: two products forward, five backward.
std::string attention_row(const AttentionShape& a, const Summary& t) {
  const double product = 2.0 * static_cast<double>(a.batch) * static_cast<double>(a.heads) *
                         static_cast<double>(a.seq) * static_cast<double>(a.seq) * static_cast<double>(a.head_dim);
  return fmt::format("{},{},{},{},{},{},{},{},trace", a.backward ? "backward" : "forward", a.causal ? "yes" : "no",
                     a.batch, a.seq, a.heads, a.kv_heads, a.head_dim, product * (a.backward ? 5 : 2) / t.p50_s / 1e12);
}

std::string kernel_row(std::string_view kind, program::DType dtype, std::int64_t bytes, double seconds) {
  return fmt::format("{},{},0,{},{},trace", kind, name_of(dtype), bytes, us(seconds));
}

const char* attention_name(program::AttentionKernel kernel) {
  switch (kernel) {
    case program::AttentionKernel::cudnn:
      return "cudnn";
    case program::AttentionKernel::sdpa_flash:
      return "sdpa_flash";
    case program::AttentionKernel::flash3:
      return "flash3";
    default:
      return "flash2";
  }
}

class Tables {
 public:
  explicit Tables(TraceCalibration& out) : out_(out) {
    for (const auto& [shape, samples] : out.samples.shapes) {
      const Timed t = timed(samples);
      if (t.beside) ++out.beside;
      std::visit([&](const auto& one) { add(one, t.time); }, shape);
    }
    add_sums();
    for (const auto& [shape, groups] : out.samples.collectives)
      collectives_.push_back(fmt::format("{},{},{},{},{},trace",
                                         kCollectiveKindWords[static_cast<std::size_t>(shape.kind)], shape.ranks,
                                         shape.nodes, shape.bytes, us(collective_time(groups))));
    out.others = kernels_.size();
    out.collectives = collectives_.size();
  }

  std::string text() {
    std::string text = rows_block("\nproducts:\n", cost::product_columns(), products_);
    text += rows_block("\ngemm:\n  clock: sustained\n", {"dtype", "m", "n", "k", "tflops", "source"}, gemm_);
    const auto most = std::max_element(attention_.begin(), attention_.end(), [](const auto& a, const auto& b) {
      return a.second.seconds < b.second.seconds;
    });
    if (most != attention_.end()) {
      out_.attentions = most->second.rows.size();
      for (const auto& [kernel, list] : attention_) out_.other_attentions += list.rows.size();
      out_.other_attentions -= out_.attentions;
      text += rows_block(fmt::format("\nattention:\n  kernel: {}\n", attention_name(most->first)),
                         {"part", "causal", "batch", "seq", "heads", "kv_heads", "head_dim", "tflops", "source"},
                         most->second.rows);
    }
    text += rows_block("\nkernels:\n", {"kind", "dtype", "flops", "bytes", "time_us", "source"}, kernels_);
    return text +
           rows_block("\ncollectives:\n", {"collective", "gpus", "nodes", "bytes", "time_us", "source"}, collectives_);
  }

 private:
  struct Attentions {
    double seconds = 0;
    std::vector<std::string> rows;
  };

  void add(const ProductShape& p, const Summary& t) {
    ++out_.products;
    if (!p.layout) {
      gemm_.push_back(gemm_row(p, t));
      return;
    }
    products_.push_back(product_row(p, t));
    // A weight's gradient: a program has it in fp32, frameworks cast it when they reduce it.
    if (!p.key.transpose_a || p.key.transpose_b) return;
    ProductShape wide = p;
    wide.key.out = program::DType::f32;
    if (p.key.out != wide.key.out) products_.push_back(product_row(wide, t));
  }
  void add(const AttentionShape& a, const Summary& t) {
    Attentions& list = attention_[a.kernel];
    list.seconds += t.p50_s * static_cast<double>(t.repetitions);
    list.rows.push_back(attention_row(a, t));
  }
  void add(const MemoryShape& m, const Summary& t) {
    kernels_.push_back(kernel_row(m.kind, m.dtype, m.bytes, t.p50_s));
  }
  void add(const PartShape& p, const Summary& t) { parts_[p] = t.p50_s; }
  void add(const CollectiveShape&, const Summary&) {}  // kept apart, by group and file

  double part(const char* name, const PartShape& like) const {
    PartShape key = like;
    key.name = name;
    const auto found = parts_.find(key);
    return found == parts_.end() ? 0 : found->second;
  }

  // Ops that are several operators in PyTorch, bytes as sim/program/work.cpp counts separate kernels: swiglu is silu
  // and a product, its backward silu's and two products; the loss log_softmax and nll_loss.
  void add_sums() {
    for (const auto& [p, seconds] : parts_) {
      const std::int64_t all = p.rows * p.cols * size_of(p.dtype);
      const double multiply = part("multiply", p), loss = part("nll_loss", p), d_loss = part("nll_loss_backward", p);
      if (p.name == "silu" && multiply > 0)
        kernels_.push_back(kernel_row("swiglu_forward", p.dtype, 5 * all, seconds + multiply));
      if (p.name == "silu_backward" && multiply > 0)
        kernels_.push_back(kernel_row("swiglu_backward", p.dtype, 9 * all, seconds + 2 * multiply));
      if (p.name == "log_softmax" && loss > 0)
        kernels_.push_back(kernel_row("cross_entropy_forward", p.dtype, 2 * all + 12 * p.rows + 8, seconds + loss));
      if (p.name == "log_softmax_backward" && d_loss > 0)
        kernels_.push_back(kernel_row("cross_entropy_backward", p.dtype, 4 * all + 12 * p.rows, seconds + d_loss));
    }
  }

  TraceCalibration& out_;
  std::vector<std::string> products_, gemm_, kernels_, collectives_;
  std::map<program::AttentionKernel, Attentions> attention_;
  std::map<PartShape, double> parts_;
};

// What was made of the kernels' time, the largest first.
std::vector<std::string> tally_rows(const std::map<std::string, Tally>& by, double all) {
  std::vector<std::pair<std::string, Tally>> list(by.begin(), by.end());
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::vector<std::string> rows;
  for (const auto& [what, t] : list) {
    if (rows.size() == kReasons) break;
    rows.push_back(fmt::format("{}: {} kernels, {:.1f}% of their time, e.g. {}", what, t.kernels,
                               all > 0 ? 100 * t.seconds / all : 0, t.example));
  }
  return rows;
}

std::string base_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

std::string provenance_text(const TraceRequest& request, const TraceCalibration& c, std::size_t steps) {
  const cost::Provenance made = provenance(request.command, 0);
  std::vector<std::string> files;
  for (const std::string& file : request.files) files.push_back(yaml_quoted(base_name(file)));
  const SampleTable& s = c.samples;
  std::string text =
      fmt::format("\nprovenance:\n  measured: {}\n  files: [{}]\n  gpu: {}\n",
                  yaml_quoted(fmt::format("a profiler's trace of {} GPU{}, {}", files.size(),
                                          files.size() == 1 ? "" : "s", base_name(request.files.front()))),
                  fmt::join(files, ", "), yaml_quoted(c.gpu.empty() ? "not known" : c.gpu));
  text += fmt::format("  steps: {}\n  steps_skipped: {}\n  kernels: {}\n  kernels_skipped: {}\n", steps,
                      request.skip_steps, s.kernels, s.skipped);
  text += fmt::format("  time_used: \"{:.1f}%\"\n  timed_beside_collectives: {}\n", 100 * c.used, c.beside);
  if (s.no_layout > 0)
    text += fmt::format("  without_strides: {}  # products whose layout is not known\n", s.no_layout);
  if (c.other_attentions > 0)
    text += fmt::format("  attention_left_out: {}  # shapes of another kernel than the one that took longest\n",
                        c.other_attentions);
  if (s.no_causal > 0) text += fmt::format("  taken_as_causal: {}  # attention without its flag\n", s.no_causal);
  for (const auto& [key, by] : {std::pair{"used", &s.used}, {"left_out", &s.left_out}}) {
    const std::vector<std::string> rows = tally_rows(*by, s.seconds);
    if (rows.empty()) continue;
    text += fmt::format("  {}:\n", key);
    for (const std::string& row : rows) text += fmt::format("    - {}\n", yaml_quoted(row));
  }
  for (const auto& [key, value] :
       {std::pair<const char*, std::string>{"date", made.date}, {"command", made.command}, {"rehearse", made.version}})
    text += fmt::format("  {}: {}\n", key, yaml_quoted(value));
  return text;
}

[[noreturn]] void refuse_calibration(const std::string& file, std::string message, std::string hint) {
  throw InputError(Diagnostic{file, 0, 0, "", std::move(message), std::move(hint)});
}

// What tells one rank's trace from another's: no two ranks start their kernels at the same instants.
struct TraceIdentity {
  std::string file;
  int rank = -1;                                   // -1: not known
  std::vector<std::pair<double, double>> kernels;  // the first: start, duration

  explicit TraceIdentity(const Trace& t) : file(t.file), rank(t.rank) {
    constexpr std::size_t kCompared = 1000;
    for (std::size_t k = 0; k < std::min(kCompared, t.kernels.size()); ++k)
      kernels.emplace_back(t.kernels[k].ts, t.kernels[k].dur);
  }
};

void refuse_the_same_rank(const std::vector<TraceIdentity>& before, const TraceIdentity& trace) {
  for (const TraceIdentity& other : before) {
    if (trace.rank >= 0 && trace.rank == other.rank)
      refuse_calibration(trace.file, fmt::format("is of rank {}, as {} is", trace.rank, other.file),
                         "one trace of each rank, of one stretch of one run");
    if (!trace.kernels.empty() && trace.kernels == other.kernels)
      refuse_calibration(trace.file, fmt::format("has the same kernels at the same times as {}", other.file),
                         "name each trace once");
  }
}

}  // namespace

std::string shipped_device(const std::string& gpu) {
  const auto is = [&](const char* part) { return gpu.find(part) != std::string::npos; };
  if (is("GB300")) return "gb300";
  if (is("B300")) return "b300-sxm";
  if (is("GB200")) return "gb200";
  if (is("B200")) return "b200-sxm";
  if (is("H200")) return "h200-sxm";
  if (is("H100") && is("HBM3")) return "h100-sxm";
  if (is("H100 PCIe")) return "h100-pcie";
  if (is("H800") && !is("PCIe")) return "h800";
  if (is("A800-SXM4-80GB")) return "a800";
  if (is("L40S")) return "l40s";
  if (is("MI300X")) return "mi300x";
  if (is("A100") && is("80GB")) return is("PCI") ? "a100-pcie-80g" : "a100-sxm-80g";
  if (is("A100-SXM4-40GB")) return "a100-sxm-40g";
  if (is("V100-SXM2-32GB")) return "v100-sxm2-32g";
  return "";
}

TraceCalibration calibrate_from_trace(const TraceRequest& request) {
  TraceCalibration c;
  std::size_t steps = 0;
  std::vector<TraceIdentity> before;
  for (std::size_t i = 0; i < request.files.size(); ++i) {
    const std::string& file = request.files[i];
    const Trace trace = read_trace(file, [&](double done) {
      if (request.progress) request.progress("reading " + base_name(file), done);
    });
    const TraceIdentity identity(trace);
    refuse_the_same_rank(before, identity);
    before.push_back(identity);
    if (c.gpu.empty()) c.gpu = trace.gpu;
    if (c.gpu != trace.gpu)
      refuse_calibration(file,
                         fmt::format("is of another GPU, {}, than {}: {}", trace.gpu, request.files.front(), c.gpu),
                         "name traces of one run");
    constexpr int kUsualNode = 8;
    add_samples(trace, {request.skip_steps, trace.gpus_listed > 1 ? trace.gpus_listed : kUsualNode},
                static_cast<int>(i), c.samples);
    steps = std::max(steps, trace.steps.size());
  }
  c.device = request.device.empty() ? shipped_device(c.gpu) : request.device;
  if (c.device.empty())
    refuse_calibration(request.files.front(),
                       fmt::format("is of {}, for which there is no device file",
                                   c.gpu.empty() ? "a GPU that it does not name" : c.gpu),
                       "--device NAME names the one to measure for: rehearse list devices");
  double used = 0;
  for (const auto& [what, t] : c.samples.used) used += t.seconds;
  c.used = c.samples.seconds > 0 ? used / c.samples.seconds : 0;
  Tables tables(c);
  const std::string rows = tables.text();
  if (rows.empty()) {
    const std::vector<std::string> why = tally_rows(c.samples.left_out, c.samples.seconds);
    refuse_calibration(request.files.front(), "has no kernel that a simulation could use",
                       why.empty() ? "no kernel is left" : why.front());
  }
  c.text = fmt::format(
      "# Kernels of a measured run, from its profiler's trace by `rehearse calibrate --from-trace`; what was used and\n"
      "# what was left out is at the end. Simulated with --calibration on top of the device's own file.\n"
      "rehearse_device: 1\nmeasurements_for: {}\n",
      c.device);
  c.text += rows + provenance_text(request, c, steps);
  return c;
}

}  // namespace rehearse::calibrate::trace
