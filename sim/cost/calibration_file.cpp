// Reads calibration files. JSON is YAML as far as these files go, so Document reads them, with positions and strict
// keys; what it says of a file that is no calibration of today ends with the command that makes one.
#include "sim/cost/calibration_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/collective_words.h"
#include "sim/base/document.h"

namespace rehearse::cost {
namespace {

using program::CollectiveKind;
using program::DType;

constexpr const char* kRemedy = "`rehearse calibrate` makes a new one";
constexpr double kLongest = 1e5;  // seconds
constexpr double kMost = 1e18;    // FLOPs, bytes

HostFacts read_host(const Node& node) {
  HostFacts host;
  host.name = node.text("name");
  host.cpu = node.text("cpu");
  host.cores = static_cast<int>(node.integer("cores", {}, 1, 4096));
  host.memory_bytes = node.integer("memory_bytes", {}, 1);
  host.isa = node.text("isa");
  host.kernel = node.text("kernel", "");
  node.finish();
  return host;
}

Provenance read_made(const Node& node) {
  Provenance made;
  made.date = node.text("date");
  made.command = node.text("command", "");
  made.version = node.text("version", "");
  made.compiler = node.text("compiler", "");
  made.eigen = node.text("eigen", "");
  made.budget_s = node.number("budget_s", 0, 0, 1e9);
  made.wall_s = node.number("wall_s", 0, 0, 1e9);
  node.finish();
  return made;
}

// A time of 0 would make whatever takes it free: never.
double seconds(const Node& node, const char* key) {
  const double value = node.number(key, {}, 0, kLongest);
  if (value <= 0 && node.get(key).as_number()) node.get(key).error("expected more than 0 seconds");
  return value;
}

Quantiles read_quantiles(const Node& node) {
  Quantiles q{seconds(node, "p10_s"), seconds(node, "p50_s"), seconds(node, "p90_s")};
  if (q.p10 > q.p50 || q.p50 > q.p90) node.error("expected p10_s <= p50_s <= p90_s");
  return q;
}

DType read_dtype(const Node& node) {
  static const std::vector<std::string> names = {"fp32", "bf16", "fp16", "i32", "u8", "e4m3", "e5m2"};
  static_assert(static_cast<int>(DType::e5m2) == 6);
  return static_cast<DType>(node.choice("dtype", names));
}

CalibratedKernel read_kernel(const Node& node, int cores) {
  CalibratedKernel k;
  k.kind = node.text("kind");
  k.shape = node.text("shape");
  k.dtype = read_dtype(node);
  k.threads = static_cast<int>(node.integer("threads", {}, 1, 4096));
  k.busy = static_cast<int>(node.integer("busy", {}, 1, std::max(1, cores)));
  k.flops = node.number("flops", {}, 0, kMost);
  k.bytes = node.number("bytes", {}, 0, kMost);
  k.time = read_quantiles(node);
  k.mean = seconds(node, "mean_s");
  k.repetitions = static_cast<int>(node.integer("repetitions", {}, 1, INT32_MAX));
  k.origin = node.choice("origin", {"grid", "program"}) == 1 ? Origin::program : Origin::grid;
  node.finish();
  return k;
}

CalibratedTransfer read_transfer(const Node& node) {
  static const std::vector<std::string> kinds = [] {
    std::vector<std::string> all(kCollectiveKindWords.begin(), kCollectiveKindWords.end());
    all.emplace_back("send");
    return all;
  }();
  CalibratedTransfer t;
  t.transport = static_cast<Transport>(node.choice("transport", {"local", "gloo"}));
  const int kind = node.choice("kind", kinds);
  t.send = kinds[static_cast<std::size_t>(kind)] == "send";
  if (!t.send) t.kind = static_cast<CollectiveKind>(kind);
  t.ranks = static_cast<int>(node.integer("ranks", {}, 2, 4096));
  t.bytes = node.integer("bytes", {}, 1);
  t.time = read_quantiles(node);
  t.repetitions = static_cast<int>(node.integer("repetitions", {}, 1, INT32_MAX));
  node.finish();
  return t;
}

void read_sharing(const Node& list, Calibration& out) {
  static const std::vector<std::string> loads = {"gemm", "memory", "transfer"};
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Node node = list.at(i);
    const int what = node.choice("class", loads), beside = node.choice("beside", loads);
    // Beside others nothing gets faster but by noise.
    const double slowdown = node.number("slowdown", {}, 0.1, 1000);
    out.slowdown[static_cast<std::size_t>(what)][static_cast<std::size_t>(beside)] = std::max(1.0, slowdown);
    node.finish();
  }
}

constexpr double kMostSpread = 10;  // of a logarithm
constexpr double kMostOften = 1e6;  // a second, or a call

Delays read_delays(const Node& node) {
  Delays d;
  if (!node) return d;
  d.rate = node.number("rate", {}, 0, kMostOften);
  d.mean_s = node.number("mean_s", {}, 0, kLongest);
  d.spread = node.number("spread", 0, 0, kMostSpread);
  return d;
}

Delays finished(const Node& node) {
  const Delays delays = read_delays(node);
  if (node) node.finish();
  return delays;
}

void read_jitter(const Node& node, Calibration& out) {
  if (!node) return;
  const Node kernels = node.get("kernels");
  for (std::size_t c = 0; c < kKernelClasses.size(); ++c)
    out.jitter.kernels[c] = kernels.number(kKernelClasses[c], 0, 0, kMostSpread);
  if (kernels) kernels.finish();
  out.jitter.transfers = node.number("transfers", 0, 0, kMostSpread);
  out.jitter.waking = node.number("waking", 0, 0, kMostSpread);
  out.jitter.rank_step = node.number("rank_step", 0, 0, kMostSpread);
  out.jitter.step = node.number("step", 0, 0, kMostSpread);
  out.jitter.transfer_delays = finished(node.get("transfer_delays"));
  out.jitter.waking_delays = finished(node.get("waking_delays"));
  out.jitter.dispatch_delays = finished(node.get("dispatch_delays"));
  const Node list = node.get("kernel_delays");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Node one = list.at(i);
    CompanyDelays c;
    c.threads = static_cast<int>(one.integer("threads", {}, 1, 4096));
    c.busy = static_cast<int>(one.integer("busy", {}, 1, 4096));
    c.delays = finished(one);
    out.kernel_delays.push_back(c);
  }
  node.finish();
}

Pace read_pace(const Node& node, int cores) {
  Pace p;
  if (!node) return p;
  p.cores = cores;
  p.probes = static_cast<int>(node.integer("probes", {}, 0, INT32_MAX));
  p.product_s = node.number("product_s", {}, 0, kLongest);
  p.copy_s = node.number("copy_s", {}, 0, kLongest);
  p.spread = node.number("spread", 0, 0, kMostSpread);
  p.taken = node.number("taken", 0, 0, 1);
  p.stolen = node.number("stolen", 0, 0, 1);
  p.waited = node.number("waited", -1, -1, 1);
  p.wanted = node.number("wanted", cores, 0, 4096);
  node.finish();
  return p;
}

void check_schema(const Node& root, const std::string& path) {
  const std::string schema = root.text("schema", "");
  if (schema != kCalibrationSchema) {
    const Node found = root.get("schema");
    const std::string what =
        schema.starts_with("rehearse.calibration/")
            ? fmt::format("this calibration has schema '{}', this version reads '{}'", schema, kCalibrationSchema)
            : fmt::format("this is no calibration: expected schema '{}'", kCalibrationSchema);
    throw InputError(Diagnostic{path, found.line(), found.column(), "schema", what, kRemedy});
  }
  const std::string kind = root.text("kind", "");
  if (kind != "cpu")
    throw InputError(Diagnostic{path, root.get("kind").line(), root.get("kind").column(), "kind",
                                fmt::format("expected a calibration of kind 'cpu', found '{}'", kind), kRemedy});
}

// The last of them says what to do.
InputError with_remedy(std::vector<Diagnostic> found) {
  std::string& hint = found.back().hint;
  hint += (hint.empty() ? "" : "; ") + std::string(kRemedy);
  return InputError(std::move(found));
}

Document open(const std::string& path, Diagnostics& diagnostics) {
  try {
    return Document::from_file(path, diagnostics);
  } catch (const InputError& broken) {
    throw with_remedy(broken.diagnostics());
  }
}

}  // namespace

bool is_calibration_path(const std::string& path) {
  return path.ends_with(".json");
}

Calibration read_calibration(const std::string& path) {
  Diagnostics diagnostics;
  const Document document = open(path, diagnostics);
  const Node root = document.root();
  check_schema(root, path);
  Calibration out;
  out.file = path;
  out.name = root.text("name");
  out.host = read_host(root.get("host"));
  out.made = read_made(root.get("made"));
  out.peak_flops = root.number("peak_flops", {}, 1, kMost);
  out.memory_bandwidth = root.number("memory_bandwidth", {}, 1, kMost);
  const Node kernels = root.get("kernels");
  for (std::size_t i = 0; i < kernels.size(); ++i) out.kernels.push_back(read_kernel(kernels.at(i), out.host.cores));
  if (out.kernels.empty()) root.error("expected 'kernels', a list of at least one");
  out.dispatch_s = root.number("dispatch_s", {}, 0, 1);
  out.wake_s = root.number("wake_s", {}, 0, 1);
  const Node transfers = root.get("transfers");
  for (std::size_t i = 0; i < transfers.size(); ++i) out.transfers.push_back(read_transfer(transfers.at(i)));
  read_sharing(root.get("sharing"), out);
  read_jitter(root.get("jitter"), out);
  out.pace = read_pace(root.get("pace"), out.host.cores);
  root.finish();
  if (!diagnostics.empty()) throw with_remedy(diagnostics.list());
  return out;
}

}  // namespace rehearse::cost
