#include "calibrate/gpu/gpu_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>

#include "calibrate/device_text.h"
#include "calibrate/gpu/kernels_to_time.h"
#include "calibrate/statistics.h"
#include "sim/cost/flash_model.h"

namespace rehearse::calibrate::gpu {
namespace {

constexpr double kLargeBytes = 32e6;  // beyond what launches and caches decide

// A number that may be unknown.
std::string cell(double value) {
  return value > 0 ? fmt::format("{:.7g}", value) : "-";
}
std::string micro(double seconds) {
  return cell(seconds * 1e6);
}

std::vector<std::string> product_rows(const std::vector<cost::ProductPoint>& points) {
  std::vector<std::string> rows;
  for (const auto& p : points)
    rows.push_back(fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}", key_cells(p.key), cell(p.tile.m),
                               cell(p.tile.n), cell(p.stages), p.split, cell(p.waves), micro(p.seconds),
                               micro(p.sustained), micro(p.first), micro(p.best), micro(p.p10), micro(p.p90),
                               cell(static_cast<double>(p.repetitions)), p.held_out ? "yes" : "no",
                               p.algorithm.empty() ? "-" : p.algorithm));
  return rows;
}

std::vector<std::string> shape_rows(const std::vector<cost::ShapePoint>& points) {
  std::vector<std::string> rows;
  for (const auto& p : points)
    rows.push_back(fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}", p.kind, p.shape, p.operands, name_of(p.dtype),
                               p.flops > 0 ? fmt::format("{:.0f}", p.flops) : "-",
                               p.bytes > 0 ? fmt::format("{:.0f}", p.bytes) : "-", micro(p.seconds), micro(p.sustained),
                               micro(p.p10), micro(p.p90), cell(static_cast<double>(p.repetitions)),
                               p.held_out ? "yes" : "no"));
  return rows;
}

std::string flash_rate(const char* key, const cost::FlashRate& r) {
  return fmt::format("  {}: {{rate: {:.6g}TFLOPS, tail: {:.4g}, ramp: {:.4g}, head_dim_64: {:.4g}}}\n", key,
                     r.rate / 1e12, std::min(r.tail, 100.0), r.ramp, std::max(r.head_dim_64, 1e-3));
}

std::string attention(const GpuCalibration& c, const Peaks& peaks) {
  if (c.flash.empty()) return "";
  const double fixed = least_kernel_time(c);
  const cost::FlashRate start{peaks.bf16 / 2, 0.5, 100, 0.8};
  std::string text = "\nattention:\n";
  text += flash_rate("forward", cost::fit_flash_rate(c.flash, false, c.facts.sms, fixed, start));
  text += flash_rate("backward", cost::fit_flash_rate(c.flash, true, c.facts.sms, fixed, start));
  text += "  rows: |\n    part,causal,batch,seq,heads,kv_heads,head_dim,tflops,source\n";
  for (const cost::FlashPoint& p : c.flash)
    text += fmt::format("    {},{},{},{},{},{},{},{:.7g},measured\n", p.backward ? "backward" : "forward",
                        p.causal ? "yes" : "no", p.batch, p.seq, p.heads, p.kv_heads, p.head_dim,
                        p.flops_per_second / 1e12);
  return text;
}

double bandwidth_of(const GpuCalibration& c) {
  return std::max(c.facts.memory_bandwidth, std::max(c.copy_bandwidth, 1e6));
}

// Median over large kernels of a class, of what they reach beyond the least kernel's time.
std::string memory_efficiency(const GpuCalibration& c) {
  const double nominal = bandwidth_of(c), fixed = least_kernel_time(c);
  std::map<std::size_t, std::vector<double>> shares;
  for (const MemoryPoint& p : c.memory)
    if (p.bytes >= kLargeBytes && p.seconds() > fixed)
      shares[static_cast<std::size_t>(p.cls)].push_back(std::min(1.0, p.bytes / (p.seconds() - fixed) / nominal));
  if (!shares.contains(0)) shares[0].push_back(c.copy_bandwidth > 0 ? c.copy_bandwidth / nominal : 0.8);
  std::string text = "\nmemory_efficiency:\n";
  for (const auto& [cls, list] : shares)
    text += fmt::format("  {}: {:.4g}\n", cost::kMemoryClasses[cls], std::max(median(list), 1e-3));
  return text + "  saturates_at: 0.5  # not measured; that of the shipped devices\n  error: {low: 0.9, high: 1.1}\n";
}

// Time in walked steps over time alone: of a class the median over its kernels, of a class without any that over all.
std::string in_steps(const GpuCalibration& c) {
  std::map<std::size_t, std::vector<double>> ratios;
  std::vector<double> all;
  for (const MemoryPoint& p : c.memory) {
    if (p.in_steps <= 0) continue;
    ratios[static_cast<std::size_t>(p.cls)].push_back(p.in_steps / p.alone);
    all.push_back(p.in_steps / p.alone);
  }
  if (all.empty()) return "";
  const auto shown = [](std::vector<double> list) { return std::clamp(median(std::move(list)), 0.1, 10.0); };
  std::string text = "\nin_steps:  # time in a program's steps over time alone\n";
  for (std::size_t cls = 0; cls < cost::kMemoryClasses.size(); ++cls)
    text += fmt::format("  {}: {:.4g}\n", cost::kMemoryClasses[cls], shown(ratios.contains(cls) ? ratios[cls] : all));
  return text;
}

const std::vector<cost::Tile> kUsualTiles = {{256, 128}, {128, 256}, {128, 128}, {256, 64},
                                             {64, 256},  {128, 64},  {64, 128},  {64, 64}};

std::vector<cost::Tile> tiles_of(const std::vector<cost::ProductPoint>& products) {
  constexpr std::size_t kEnough = 3;
  std::vector<cost::Tile> tiles;
  for (const auto& p : products) {
    const auto same = [&](const cost::Tile& t) { return t.m == p.tile.m && t.n == p.tile.n; };
    if (p.tile.m > 0 && p.tile.n > 0 && std::none_of(tiles.begin(), tiles.end(), same)) tiles.push_back(p.tile);
  }
  return tiles.size() >= kEnough ? tiles : kUsualTiles;
}

cost::GemmConstants fitted(const GpuCalibration& c, const Peaks& peaks, const std::vector<cost::Tile>& tiles) {
  // Where there is little to fit: those of the shipped H100.
  cost::GemmConstants constants{0.862, 3.3e-6, 0, 35.8e-12, 0.83e-12, 1.45e-6, 0};
  std::vector<cost::GemmPoint> points;
  for (const auto& p : c.measured.products)
    if (!p.held_out && p.key.plain() && p.key.dtype != program::DType::f32)
      points.push_back({{p.key.m, p.key.n, p.key.k}, p.seconds});
  if (points.size() < 8) return constants;
  const double copy = c.copy_bandwidth > 0 ? c.copy_bandwidth : 0.8 * bandwidth_of(c);
  return cost::fit_gemm_constants({c.facts.sms, peaks.bf16, copy, tiles}, points, constants);
}

std::string gemm(const GpuCalibration& c, const Peaks& peaks) {
  const std::vector<cost::Tile> tiles = tiles_of(c.measured.products);
  const cost::GemmConstants k = fitted(c, peaks, tiles);
  const cost::Range sustained = sustained_of(c.measured.products);
  std::string list;
  for (const cost::Tile& t : tiles) list += fmt::format("{}[{}, {}]", list.empty() ? "" : ", ", t.m, t.n);
  return fmt::format(
      "\ngemm:\n  sustained: {{factor: {:.4f}, low: {:.4f}, high: {:.4f}}}  # burst / long-run time\n"
      "  constants:\n    efficiency: {:.4g}\n    launch: {:.4f}us\n    wave: {:.4f}us\n    tile_ps: {:.4g}\n"
      "    edge_ps: {:.4g}\n    split: {:.4f}us\n    partials: {:.4g}\n    tiles: [{}]\n",
      sustained.value, sustained.low, sustained.high, k.efficiency, k.launch * 1e6, k.wave * 1e6, k.tile * 1e12,
      k.edge * 1e12, k.split * 1e6, k.partials, list);
}

std::string launch(const cost::LaunchTimes& l) {
  std::string items;
  for (const auto& [key, seconds] :
       {std::pair{"plain", l.plain}, {"graph", l.graph}, {"plain_gap", l.plain_gap}, {"graph_gap", l.graph_gap}})
    if (seconds > 0) items += fmt::format("{}{}: {:.4f}us", items.empty() ? "" : ", ", key, seconds * 1e6);
  return items.empty() ? "" : fmt::format("\nlaunch: {{{}}}\n", items);
}

// nccl-tests' busbw (doc/PERFORMANCE.md).
double bus_factor(const Transfer& t) {
  const double n = t.gpus;
  if (t.kind == "all_reduce") return 2 * (n - 1) / n;
  return t.kind == "send" ? 1 : (n - 1) / n;
}

// Payload rate of a GPU's NVLink in one direction as NCCL takes it (src/graph/topo.h, 2.28.9), GB/s.
double nvlink_of(const Facts& f) {
  return f.major >= 10 ? 721.8 : f.major >= 9 ? 370.8 : 240;
}

std::string collectives(const GpuCalibration& c) {
  if (c.transfers.empty()) return "\n# Measured on one GPU: no collectives.\ncollectives: {of: topology}\n";
  std::string text = fmt::format(
      "\ncollectives:\n  library: {}\n  model: nccl\n  generation: {}\n  cpu: intel  # not asked\n"
      "  measured_on: {{nvlink: {}GB/s, nic: 47GB/s}}  # as NCCL counts them; nothing was measured across nodes\n"
      "  blocks: {{node: 24, nodes: 16, nvls: {}, send: 2}}  # as NCCL 2.28.9 launches them\n"
      "  interval: {{exact: [0.95, 1.05], interpolated: [0.9, 1.12], extrapolated: [0.75, 1.35], spec: [0.6, 1.7]}}\n",
      yaml_quoted("NCCL " + c.facts.nccl), c.facts.major >= 9 ? "hopper" : "ampere", nvlink_of(c.facts),
      c.facts.major >= 9 ? 16 : 0);
  text += "  rows: |\n    collective,gpus,nodes,bytes,time_us,source\n";
  for (const Transfer& t : c.transfers)
    if (t.algorithm == "free" && t.kind != "send")
      text += fmt::format("    {},{},1,{},{},measured\n", t.kind, t.gpus, t.bytes, micro(t.seconds));
  // A message is half an exchange of two devices, which is how the reader knows it.
  for (const Transfer& t : c.transfers)
    if (t.algorithm == "free" && t.kind == "send" && t.gpus == 2 &&
        std::none_of(c.transfers.begin(), c.transfers.end(), [&](const Transfer& o) {
          return o.kind == "all_to_all" && o.gpus == 2 && o.bytes == 2 * t.bytes && o.algorithm == "free";
        }))
      text += fmt::format("    all_to_all,2,1,{},{},measured\n", 2 * t.bytes, micro(t.seconds));
  text +=
      "  pinned: |\n    "
      "collective,gpus,bytes,algorithm,protocol,time_us,algbw_gbs,busbw_gbs,p10_us,p90_us,repetitions\n";
  for (const Transfer& t : c.transfers) {
    const double algbw = static_cast<double>(t.bytes) / t.seconds / 1e9;
    text +=
        fmt::format("    {},{},{},{},{},{},{:.4g},{:.4g},{},{},{}\n", t.kind, t.gpus, t.bytes, t.algorithm, t.protocol,
                    micro(t.seconds), algbw, algbw * bus_factor(t), micro(t.p10), micro(t.p90), t.repetitions);
  }
  return text;
}

std::string state_text(const State& s) {
  if (!s.known) return "unknown (no NVML)";
  return fmt::format("SM {} of {} MHz, memory {} MHz, {:.0f} of {:.0f} W, {} C, throttle {}", s.sm_mhz, s.max_sm_mhz,
                     s.memory_mhz, s.power_w, s.power_limit_w, s.temperature_c,
                     s.throttle_known ? kernels::throttle_text(s.throttle) : "unknown");
}

std::string conditions_text(const execute::DeviceConditions& c) {
  if (c.samples == 0) return "unknown (no NVML)";
  return fmt::format("SM {} ({} at least) of {} MHz, memory {} MHz, {:.0f} of {:.0f} W, {} C, throttle {}", c.sm_mhz,
                     c.least_sm_mhz, c.max_sm_mhz, c.memory_mhz, c.power_w, c.power_limit_w, c.temperature_c,
                     c.throttle_known ? kernels::throttle_text(c.throttle) : "unknown");
}

std::string provenance(const GpuCalibration& c) {
  std::string text = "\nprovenance:\n";
  const auto line = [&](const std::string& key, const std::string& value) {
    text += fmt::format("  {}: {}\n", key, yaml_quoted(value));
  };
  line("gpu", fmt::format("{}, compute capability {}.{}, {} in reach", c.facts.name, c.facts.major, c.facts.minor,
                          c.facts.devices));
  for (const auto& [when, state] : c.states) line("state_" + when, state_text(state));
  for (std::size_t i = 0; i < c.walks.size(); ++i)
    line(fmt::format("walk_{}", i + 1), c.walks[i].first + ": " + conditions_text(c.walks[i].second));
  line("date", c.made.date);
  line("command", c.made.command);
  line("rehearse", c.made.version + ", " + c.made.compiler);
  for (const auto& [key, value] : {std::pair<std::string, std::string>{"driver", c.facts.driver},
                                   {"cuda_runtime", c.facts.runtime},
                                   {"cublas", c.facts.cublas},
                                   {"cudnn", c.facts.cudnn},
                                   {"nccl", c.facts.nccl}})
    line(key, value.empty() ? "none" : value);
  line("timing",
       "device time of CUDA graphs of many launches, operands of random normal numbers rotated over more than four "
       "times the L2 cache; time_us is the median of bursts; sustained_us, where scenarios were walked, the median of "
       "the kernel's spans in their steps, else of the second half of a run of the heaviest products in turn");
  return text + fmt::format("  budget_s: {}\n  wall_s: {:.4g}\n", c.made.budget_s, c.made.wall_s);
}

}  // namespace

std::string device_name(const std::string& gpu) {
  std::string name;
  for (const char c : gpu) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u)) {
      name += static_cast<char>(std::tolower(u));
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (name.ends_with('-')) name.pop_back();
  if (name.starts_with("nvidia-")) name.erase(0, 7);
  return name.empty() ? "gpu" : name;
}

// Data sheets as topologies and shipped devices cite them: H100 and H200 SXM, A100 SXM, HGX B200. Else FLOPs a clock
// and multiprocessor: 2048 (8.0), 4096 (9.0), 8192 (10.0), 1024 for others, in bf16, dense.
Peaks peaks_of(const Facts& f, int max_sm_mhz) {
  const auto is = [&](const char* part) { return f.name.find(part) != std::string::npos; };
  if (is("H200") || (is("H100") && is("HBM3"))) return {989.4e12, 494.7e12, 66.9e12};
  if (is("A100")) return {312e12, 156e12, 19.5e12};
  if (is("B200")) return {2250e12, 1100e12, 75e12};
  const double clock = (max_sm_mhz > 0 ? max_sm_mhz : 1500) * 1e6;
  const double per_clock = f.major >= 10 ? 8192 : f.major >= 9 ? 4096 : f.major == 8 && f.minor == 0 ? 2048 : 1024;
  const double bf16 = per_clock * clock * f.sms;
  return {bf16, bf16 / 2, 256 * clock * f.sms};
}

double least_kernel_time(const GpuCalibration& c) {
  double least = 5e-6;
  for (const auto& p : c.measured.shapes) least = std::min(least, p.seconds);
  return std::max(least, 0.5e-6);
}

cost::Range sustained_of(const std::vector<cost::ProductPoint>& products) {
  std::vector<double> factors;
  for (const auto& p : products)
    if (p.sustained > 0 && !p.held_out) factors.push_back(p.seconds / p.sustained);
  if (factors.empty()) return {};
  return {median(factors), quantile(factors, 0.1), quantile(factors, 0.9)};
}

cost::Jitter jitter_of(const cost::MeasuredDevice& measured) {
  constexpr double kDeciles = 2 * 1.2816;  // standard deviations between the 10th and the 90th percentile
  std::array<std::vector<double>, cost::kKernelClasses.size()> spreads;
  const auto add = [&](cost::KernelClass c, const auto& point) {
    if (point.p10 > 0 && point.p90 >= point.p10 && point.repetitions > 2 && !point.held_out)
      spreads[static_cast<std::size_t>(c)].push_back(std::log(point.p90 / point.p10) / kDeciles);
  };
  for (const cost::ProductPoint& p : measured.products) add(cost::KernelClass::product, p);
  for (const cost::ShapePoint& p : measured.shapes)
    add(p.kind.find("attention") == std::string::npos ? cost::KernelClass::other : cost::KernelClass::attention, p);
  cost::Jitter jitter;
  for (std::size_t c = 0; c < spreads.size(); ++c)
    if (!spreads[c].empty()) jitter.kernels[c] = median(std::move(spreads[c]));
  return jitter;
}

std::string to_yaml(const GpuCalibration& c) {
  const int max_mhz = c.states.empty() ? 0 : c.states.front().second.max_sm_mhz;
  const Peaks peaks = peaks_of(c.facts, max_mhz);
  double host = 0;
  for (const auto& p : c.measured.copies)
    if (p.direction == "to_device") host = std::max(host, static_cast<double>(p.bytes) / p.seconds);
  std::string text = fmt::format(
      "# {}, measured by `rehearse calibrate --device cuda`; see provenance at the end.\nrehearse_device: 1\nname: {}\n"
      "kind: gpu\nsms: {}\nmemory: {}B\nmemory_bandwidth: {:.6g}GB/s\n",
      c.facts.name, device_name(c.facts.name), c.facts.sms, c.facts.memory_bytes, bandwidth_of(c) / 1e9);
  if (host > 0) text += fmt::format("host_bandwidth: {:.5g}GB/s\n", host / 1e9);
  text += fmt::format(
      "kernel_time: {:.4f}us\npeak: {{bf16: {:.6g}TFLOPS, fp16: {:.6g}TFLOPS, fp32: {:.6g}TFLOPS}}  # dense, nominal; "
      "fp32 without TF32\n",
      least_kernel_time(c) * 1e6, peaks.bf16 / 1e12, peaks.bf16 / 1e12, peaks.fp32 / 1e12);
  if (c.reserve_bytes > 0)
    text += fmt::format("reserve: {}B  # besides a rank's tensors, by the driver's count\n", c.reserve_bytes);
  if (const cost::Jitter jitter = jitter_of(c.measured); jitter.any())
    text +=
        fmt::format("jitter: {{product: {:.4g}, attention: {:.4g}, other: {:.4g}}}  # of bursts, see docs/data.md\n",
                    jitter.kernels[0], jitter.kernels[1], jitter.kernels[2]);
  text += memory_efficiency(c) + in_steps(c) + gemm(c, peaks) + attention(c, peaks) + launch(c.measured.launch);
  text += rows_block("\nproducts:\n", cost::product_columns(), product_rows(c.measured.products));
  text += rows_block("\nshapes:\n", cost::shape_columns(), shape_rows(c.measured.shapes));
  std::vector<std::string> rows;
  for (const auto& p : c.measured.copies)
    rows.push_back(fmt::format("{},{},{}", p.direction, p.bytes, micro(p.seconds)));
  text += rows_block("\ncopies:\n", cost::copy_columns(), rows);
  rows.clear();
  for (const auto& p : c.measured.interference)
    rows.push_back(
        fmt::format("{},{},{},{:.5g}", key_cells(p.key), cell(p.sms_held), cell(p.bandwidth_taken / 1e9), p.slowdown));
  text += rows_block("\ninterference:\n", cost::interference_columns(), rows);
  return text + collectives(c) + provenance(c);
}

std::vector<HeldOut> check_held_out(const std::string& file) {
  const cost::DeviceData data = cost::read_device_files({file});
  const auto costs = cost::load_costs({file});
  std::vector<HeldOut> list;
  for (const cost::ProductPoint& p : data.measured.products) {
    if (!p.held_out) continue;
    const program::Program program = product_program(p.key);
    const program::Role& role = program.roles.front();
    const cost::Estimate e = costs->kernel(role, role.bodies.front().ops.front(), {});
    const double measured = p.sustained > 0 ? p.sustained : p.seconds / data.gemm.sustained.value;
    list.push_back({fmt::format("{} m={} n={} k={}", cost::form_text(p.key), p.key.m, p.key.n, p.key.k), measured,
                    e.duration.seconds(), e.coverage});
  }
  return list;
}

}  // namespace rehearse::calibrate::gpu
