// Reads device files and their tables (device_file.h); strict: an unknown key, unit or column is an error with
// position.
#include "sim/cost/device_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "sim/base/csv.h"
#include "sim/base/document.h"
#include "sim/cost/flash_model.h"

namespace rehearse::cost {
namespace {

constexpr int kSchema = 1;
constexpr double kLeastTflops = 1e-6, kMostTflops = 1e5;  // of a table: a slow CPU core, ten times any device
constexpr double kNoFloor = 1e-6;                         // shares and factors are positive
const std::vector<std::string> kDTypes = {"f32", "bf16", "f16"};

Range read_range(const Node& parent, std::string_view key, std::string_view value_key) {
  const Node node = parent.get(key);
  if (!node) return {};
  Range range;
  if (!value_key.empty()) range.value = node.number(value_key, {}, kNoFloor, 100);
  range.low = node.number("low", range.value, kNoFloor, 100);
  range.high = node.number("high", range.value, kNoFloor, 100);
  node.finish();
  if (range.low > range.value || range.value > range.high) node.error("expected low <= value <= high");
  return range;
}

double seconds_of(const Node& node, std::string_view key) {
  return node.time(key, Time()).seconds();
}

std::string beside(const std::string& file, const std::string& table) {
  return (std::filesystem::path(file).parent_path() / table).string();
}

// The file a `table:` key names; empty if there is none.
std::string table_path(const Node& node, const std::string& file) {
  const std::string table = node.text("table", "");
  return table.empty() ? "" : beside(file, table);
}

// The text of a literal block `rows`, and the line of `node`'s file on which it begins.
struct Rows {
  std::string text;
  int first_line = 1;
};
std::optional<Rows> rows_of(const Node& node) {
  const Node rows = node.get("rows");
  const auto text = rows.as_text();
  return text ? std::optional(Rows{*text, rows.line() + 1}) : std::nullopt;
}

// 8-bit products, whose results are of 16 bits.
void read_fp8_table(const std::string& path, Fp8Gemm& fp8, Diagnostics& diagnostics) {
  CsvTable table(path, read_text_file(path), {{"dtype", "m", "n", "k", "tflops", "source"}}, diagnostics,
                 CsvDialect::commented);
  while (const CsvRow* row = table.next()) {
    row->choice("dtype", {"fp8"});
    GemmPoint point;
    point.shape.m = row->positive_integer("m");
    point.shape.n = row->positive_integer("n");
    point.shape.k = row->positive_integer("k");
    point.shape.element_bytes = 1, point.shape.result_bytes = 2;
    point.seconds = point.shape.flops() / (row->positive_number("tflops", kLeastTflops, kMostTflops) * 1e12);
    fp8.points.push_back(point);
  }
}

// `first_line`: where the text begins in `file`.
void read_gemm_points(const std::string& file, std::string text, int first_line, GemmData& gemm,
                      Diagnostics& diagnostics) {
  CsvTable table(file, std::move(text), {{"dtype", "m", "n", "k", "tflops", "source"}}, diagnostics,
                 CsvDialect::commented, first_line);
  while (const CsvRow* row = table.next()) {
    const int dtype = row->choice("dtype", kDTypes);
    GemmPoint point;
    point.shape.m = row->positive_integer("m");
    point.shape.n = row->positive_integer("n");
    point.shape.k = row->positive_integer("k");
    point.shape.element_bytes = dtype == 0 ? 4 : 2;
    point.seconds = point.shape.flops() / (row->positive_number("tflops", kLeastTflops, kMostTflops) * 1e12);
    (dtype == 0 ? gemm.points_f32 : gemm.points).push_back(point);
  }
}

void read_gemm_table(const std::string& path, GemmData& gemm, Diagnostics& diagnostics) {
  read_gemm_points(path, read_text_file(path), 1, gemm, diagnostics);
}

constexpr std::array<std::pair<const char*, program::AttentionKernel>, 6> kAttentionKernels = {
    {{"flash1", program::AttentionKernel::flash1},
     {"flash2", program::AttentionKernel::flash2},
     {"sdpa_flash", program::AttentionKernel::sdpa_flash},
     {"flash3", program::AttentionKernel::flash3},
     {"flash_triton", program::AttentionKernel::flash_triton},
     {"cudnn", program::AttentionKernel::cudnn}}};

std::vector<std::string> attention_kernel_names() {
  std::vector<std::string> names;
  for (const auto& [name, kernel] : kAttentionKernels) names.emplace_back(name);
  return names;
}

// Null for the kernel that the rows are of. Of another that `flash` lists; an error if it does not.
FlashKernel* library_of(const CsvRow& row, FlashData& flash) {
  if (!row.has("library") || row.text("library") == "-") return nullptr;
  const auto at = static_cast<std::size_t>(row.choice("library", attention_kernel_names()));
  const program::AttentionKernel kernel = kAttentionKernels[at].second;
  if (kernel == flash.fastest_is) return nullptr;
  const auto found = flash.others.find(kernel);
  if (found != flash.others.end()) return &found->second;
  row.error("library", fmt::format("'{}' is not among attention.others, which has its rates", row.text("library")));
  return nullptr;
}

FlashPoint read_flash_point(const CsvRow& row) {
  FlashPoint point;
  point.backward = row.choice("part", {"forward", "backward"}) == 1;
  point.causal = row.choice("causal", {"no", "yes"}) == 1;
  point.batch = row.positive_integer("batch");
  point.seq = row.positive_integer("seq");
  point.heads = row.positive_integer("heads");
  point.kv_heads = row.positive_integer("kv_heads");
  point.head_dim = row.positive_integer("head_dim");
  point.flops_per_second = row.positive_number("tflops", kLeastTflops, kMostTflops) * 1e12;
  return point;
}

// `device`: of a device's own rows, some of which may be another library's, as it was measured here.
void read_flash_points(const std::string& file, std::string text, int first_line, FlashKernel& flash,
                       Diagnostics& diagnostics, FlashData* device = nullptr) {
  CsvColumns columns{{"part", "causal", "batch", "seq", "heads", "kv_heads", "head_dim", "tflops", "source"}};
  if (device != nullptr) columns.optional = {"library"};
  CsvTable table(file, std::move(text), columns, diagnostics, CsvDialect::commented, first_line);
  while (const CsvRow* row = table.next()) {
    FlashPoint point = read_flash_point(*row);
    FlashKernel* const library = device == nullptr ? nullptr : library_of(*row, *device);
    if (library != nullptr) {
      point.flops_per_second /= library->scale.value;
      point.added = true;
    }
    (library == nullptr ? flash : *library).points.push_back(point);
  }
}

void read_flash_table(const std::string& path, FlashKernel& flash, Diagnostics& diagnostics) {
  read_flash_points(path, read_text_file(path), 1, flash, diagnostics);
}

// Of queries and keys wider than values.
void read_wide_table(const std::string& path, std::vector<FlashPoint>& points, Diagnostics& diagnostics) {
  CsvTable table(path, read_text_file(path),
                 {{"part", "causal", "batch", "seq", "heads", "kv_heads", "head_dim", "value_dim", "tflops", "source"}},
                 diagnostics, CsvDialect::commented);
  while (const CsvRow* row = table.next()) {
    FlashPoint point = read_flash_point(*row);
    point.value_dim = row->positive_integer("value_dim");
    if (point.value_dim >= point.head_dim) row->error("value_dim", "expected fewer columns than head_dim");
    points.push_back(point);
  }
}

// The table as a literal block, as calibrations have it.
void read_flash_rows(const Node& node, FlashKernel& flash, Diagnostics& diagnostics, FlashData* device = nullptr) {
  if (auto rows = rows_of(node))
    read_flash_points(node.file(), std::move(rows->text), rows->first_line, flash, diagnostics, device);
}

void read_kernel_points(const std::string& file, std::string text, int first_line, std::vector<KernelPoint>& kernels,
                        Diagnostics& diagnostics) {
  CsvTable table(file, std::move(text), {{"kind", "dtype", "flops", "bytes", "time_us", "source"}}, diagnostics,
                 CsvDialect::commented, first_line);
  while (const CsvRow* row = table.next()) {
    KernelPoint point;
    point.kind = row->text("kind");
    point.dtype = std::array{program::DType::f32, program::DType::bf16,
                             program::DType::f16}[static_cast<std::size_t>(row->choice("dtype", kDTypes))];
    point.flops = row->text("flops") == "0" ? 0 : row->positive_number("flops");
    point.bytes = row->positive_number("bytes");
    point.seconds = row->positive_number("time_us", 1e-6, 1e9) * 1e-6;
    kernels.push_back(point);
  }
}

void read_kernel_table(const std::string& path, std::vector<KernelPoint>& kernels, Diagnostics& diagnostics) {
  read_kernel_points(path, read_text_file(path), 1, kernels, diagnostics);
}

void read_gemm_constants(const Node& node, GemmConstants& c, std::vector<Tile>& into) {
  c.efficiency = node.number("efficiency", {}, kNoFloor, 1);
  c.launch = seconds_of(node, "launch");
  c.wave = seconds_of(node, "wave");
  c.tile = node.number("tile_ps", 0.0, 0, 1e6) * 1e-12;
  c.edge = node.number("edge_ps", 0.0, 0, 1e6) * 1e-12;
  c.split = seconds_of(node, "split");
  c.partials = node.number("partials", 0.0, 0, 100);
  const Node tiles = node.get("tiles");
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const Node tile = tiles.at(i);
    const auto m = tile.at(0).as_integer(), n = tile.at(1).as_integer();
    if (tile.size() != 2 || !m || !n || *m <= 0 || *n <= 0 || *m > 4096 || *n > 4096) {
      tile.error("expected a tile as [rows, columns]");
    } else {
      into.push_back({static_cast<int>(*m), static_cast<int>(*n)});
    }
  }
  node.finish();
}

// 8-bit products: as those of 16 bits, with constants of their own or at the same shares of their own peak.
void read_fp8(const Node& node, const std::string& file, GemmData& gemm, Diagnostics& diagnostics) {
  Fp8Gemm& fp8 = gemm.fp8;
  fp8.constants = gemm.constants;
  fp8.tiles = gemm.tiles;
  fp8.sustained = gemm.sustained;
  fp8.interpolated = gemm.interpolated;
  fp8.extrapolated = gemm.extrapolated;
  if (!node) return;
  fp8.known = true;
  const std::string table = table_path(node, file);
  fp8.measured_here = node.boolean("measured_here", true);
  fp8.sustained = read_range(node, "sustained", "factor");
  fp8.interpolated = read_range(node, "interpolated", "");
  fp8.extrapolated = read_range(node, "extrapolated", "");
  fp8.split_accumulation = read_range(node, "split_accumulation", "factor");
  fp8.row_scales = read_range(node, "row_scales", "factor");
  double cast_seconds = 0, cast_element = 0;  // what the table's times have besides: of casting A
  if (const Node cast = node.get("cast_included")) {
    cast_seconds = seconds_of(cast, "time");
    cast_element = cast.number("element_ps", 0.0, 0, 1e6) * 1e-12;
    cast.finish();
  }
  fp8.tiles.clear();
  if (const Node constants = node.get("constants"))
    read_gemm_constants(constants, fp8.constants, fp8.tiles);
  else
    node.error("missing key 'constants'");
  node.finish();
  if (!table.empty()) read_fp8_table(table, fp8, diagnostics);
  constexpr double kLeastLeft = 0.1;  // of a time, whatever is taken off it
  for (GemmPoint& point : fp8.points) {
    const double elements = static_cast<double>(point.shape.m) * static_cast<double>(point.shape.k);
    point.seconds = std::max(kLeastLeft * point.seconds, point.seconds - cast_seconds - cast_element * elements);
  }
}

void read_gemm(const Node& node, const std::string& file, GemmData& gemm, Diagnostics& diagnostics) {
  const std::string table = table_path(node, file);
  gemm.measured_here = node.boolean("measured_here", true);
  gemm.sustained = read_range(node, "sustained", "factor");
  gemm.accumulate_exposed = node.number("accumulate_exposed", 1.0, 0, 1);
  gemm.convolution = node.number("convolution", 1.0, kNoFloor, 1);
  if (const Node unaligned = node.get("unaligned")) {
    gemm.unaligned = {read_range(unaligned, "even", "factor"), read_range(unaligned, "odd", "factor")};
    unaligned.finish();
  }
  gemm.sustained_f32 = gemm.sustained;
  if (const Node single = node.get("fp32")) {
    gemm.tensor_cores_f32 = single.boolean("tensor_cores", true);
    gemm.cores_f32 = single.flop_rate("cores", FlopRate()).per_s();
    gemm.efficiency_f32 = single.number("efficiency", 0.0, 0, 1);
    if (single.has("sustained")) gemm.sustained_f32 = read_range(single, "sustained", "factor");
    single.finish();
  }
  gemm.intervals_given = node.has("interpolated");
  gemm.interpolated = read_range(node, "interpolated", "");
  gemm.extrapolated = read_range(node, "extrapolated", "");
  const Node constants = node.get("constants");
  if (constants) {
    read_gemm_constants(constants, gemm.constants, gemm.tiles);
  } else {
    node.error("missing key 'constants'");
  }
  read_fp8(node.get("fp8"), file, gemm, diagnostics);
  node.finish();
  if (!table.empty()) read_gemm_table(table, gemm, diagnostics);
}

// A rate that something can be divided by.
double positive_rate(const Node& node, std::string_view key) {
  constexpr double kLeast = kLeastTflops * 1e12;
  const double rate = node.flop_rate(key).per_s();
  if (rate >= kLeast) return rate;
  if (node.has(key)) node.get(key).error(fmt::format("expected at least {} FLOP/s", kLeast));
  return kLeast;
}

FlashRate read_flash_rate(const Node& parent, std::string_view key) {
  const Node node = parent.get(key);
  FlashRate rate;
  if (!node) {
    parent.error(fmt::format("missing key '{}'", key));
    return rate;
  }
  rate.rate = positive_rate(node, "rate");
  rate.tail = node.number("tail", 0.0, 0, 100);
  rate.ramp = node.number("ramp", 0.0, 0, 1e6);
  rate.head_dim_64 = node.number("head_dim_64", 1.0, kNoFloor, 2);
  node.finish();
  return rate;
}

// What every kernel has.
void read_flash_kernel(const Node& node, const std::string& file, FlashKernel& kernel, Diagnostics& diagnostics) {
  kernel.measured_here = node.boolean("measured_here", true);
  kernel.scale = read_range(node, "scale", "factor");
  kernel.error = read_range(node, "error", "");
  kernel.forward = read_flash_rate(node, "forward");
  kernel.backward = read_flash_rate(node, "backward");
  if (const Node again = node.get("deterministic")) {
    kernel.deterministic_given = true;
    kernel.deterministic_scores = again.kind() == Node::Kind::scalar;
    if (kernel.deterministic_scores)
      node.choice("deterministic", {"scores"}, 0);
    else
      kernel.deterministic = read_range(node, "deterministic", "factor");
  }
  if (const Node wide = node.get("wide")) {
    kernel.wide_forward = read_flash_rate(wide, "forward");
    kernel.wide_backward = read_flash_rate(wide, "backward");
    kernel.wide_scale = wide.has("scale") ? read_range(wide, "scale", "factor") : kernel.scale;
    const std::string table = table_path(wide, file);
    wide.finish();
    if (!table.empty()) read_wide_table(table, kernel.wide_points, diagnostics);
  }
}

void read_flash(const Node& node, const std::string& file, FlashData& flash, Diagnostics& diagnostics) {
  const std::string table = table_path(node, file);
  if (node.has("kernel"))
    flash.fastest_is =
        kAttentionKernels[static_cast<std::size_t>(node.choice("kernel", attention_kernel_names(), 0))].second;
  if (const Node others = node.get("others")) {
    for (const auto& [name, kernel] : kAttentionKernels) {
      const Node other = others.get(name);
      if (!other) continue;
      read_flash_kernel(other, file, flash.others[kernel], diagnostics);
      other.finish();
    }
    others.finish();
  }
  read_flash_kernel(node, file, flash.fastest, diagnostics);
  read_flash_rows(node, flash.fastest, diagnostics, &flash);
  node.finish();
  if (!table.empty()) read_flash_table(table, flash.fastest, diagnostics);
}

// Classes that are not given are as `elementwise`, the first.
void read_memory(const Node& node, DeviceData& data) {
  const double elementwise = node.number(kMemoryClasses[0], {}, kNoFloor, 1);
  for (std::size_t i = 0; i < kMemoryClasses.size(); ++i)
    data.memory_efficiency[i] = node.number(kMemoryClasses[i], elementwise, kNoFloor, 1);
  data.memory_saturates = node.number("saturates_at", 1.0, kNoFloor, 1);
  data.memory_error = read_range(node, "error", "");
  node.finish();
}

// Plain products and all other kernels also stand in the tables from which other shapes are interpolated; a product in
// burst clocks. `in_run`: the times were taken in a long run alone.
void add_measured(const MeasuredDevice& measured, bool in_run, DeviceData& data) {
  const double to_burst = in_run ? data.gemm.sustained.value : 1;
  for (const ProductPoint& p : measured.products) {
    if (p.held_out || !p.key.plain()) continue;
    const bool fp32 = p.key.dtype == program::DType::f32;
    GemmPoint point{{p.key.m, p.key.n, p.key.k}, p.seconds * to_burst};
    point.shape.element_bytes = fp32 ? 4 : 2;
    (fp32 ? data.gemm.points_f32 : data.gemm.points).push_back(point);
  }
  for (const ShapePoint& p : measured.shapes)
    if (!p.held_out && p.flops + p.bytes > 0)
      data.kernels.push_back({p.kind, p.dtype, p.flops, p.bytes, p.sustained > 0 ? p.sustained : p.seconds});
}

void read_in_steps(const Node& node, DeviceData& data) {
  for (std::size_t i = 0; i < kMemoryClasses.size(); ++i)
    data.in_steps[i] = node.number(kMemoryClasses[i], 1.0, 0.1, 10);
  node.finish();
}

void read_device(const Node& root, const std::string& file, DeviceData& data, Diagnostics& diagnostics) {
  Device& device = data.device;
  device.name = root.text("name");
  device.file = file;
  device.cpu = root.choice("kind", {"gpu", "cpu"}) == 1;
  device.sms = static_cast<int>(root.integer(device.cpu ? "cores" : "sms", {}, 1, 1 << 20));
  device.memory = root.bytes("memory");
  device.memory_bandwidth = root.bandwidth("memory_bandwidth");
  root.check_lowest("memory_bandwidth", device.memory_bandwidth);
  device.memory_bandwidth = std::max(device.memory_bandwidth, kLowestBandwidth);
  data.host_bandwidth = root.bandwidth("host_bandwidth", device.memory_bandwidth);
  data.kernel_time = root.time("kernel_time");
  device.host_launch = root.number("host_launch", 1.0, 0.1, 100);
  device.reserve = root.bytes("reserve", Bytes());
  if (const Node jitter = root.get("jitter")) {
    for (std::size_t c = 0; c < kKernelClasses.size(); ++c)
      device.jitter.kernels[c] = jitter.number(kKernelClasses[c], 0, 0, 10);
    jitter.finish();
  }
  const auto section = [&](std::string_view key) {
    const Node node = root.get(key);
    if (!node) root.error(fmt::format("missing key '{}'", key));
    return node;
  };
  if (const Node peak = section("peak")) {
    device.peak_fp32 = peak.flop_rate("fp32");
    device.peak_bf16 = peak.flop_rate("bf16", FlopRate());
    device.peak_fp16 = peak.flop_rate("fp16", FlopRate());
    device.peak_fp8 = peak.flop_rate("fp8", FlopRate());
    device.peak_fp4 = peak.flop_rate("fp4", FlopRate());
    peak.finish();
  }
  if (const Node memory = section("memory_efficiency")) read_memory(memory, data);
  if (const Node in_steps = root.get("in_steps")) read_in_steps(in_steps, data);
  if (const Node gemm = section("gemm")) read_gemm(gemm, file, data.gemm, diagnostics);
  if (!data.gemm.tensor_cores_f32) data.gemm.cores_f32 = device.peak_fp32.per_s();
  if (const Node flash = root.get("attention")) {
    read_flash(flash, file, data.flash, diagnostics);
  } else {  // as fast as matrix products
    const double peak = (device.peak_bf16.per_s() > 0 ? device.peak_bf16 : device.peak_fp32).per_s();
    data.flash.fastest.forward.rate = data.flash.fastest.backward.rate = data.gemm.constants.efficiency * peak;
  }
  device.sustained = data.gemm.sustained.value;
  if (const Node power = root.get("power")) device.power = read_power(power);
  if (const Node kernels = root.get("kernels")) {
    const std::string table = table_path(kernels, file);
    kernels.finish();
    if (!table.empty()) read_kernel_table(table, data.kernels, diagnostics);
  }
  read_measured(root, data.measured, diagnostics);
  device.launch = Time::from_seconds(data.measured.launch.graph);
  add_measured(data.measured, false, data);
  root.get("collectives");  // sim/collective/measurements.h
  root.get("provenance");   // free form, for people
  root.finish();
}

struct MeasuredKernel {
  FlashKernel& kernel;
  bool listed;  // by the device's file, or by a file of measurements before
};
// The data of the attention kernel that a file of measurements names: the device's fastest if it names none. One that
// the device's file does not list begins as the fastest, without its points.
MeasuredKernel measured_kernel(const Node& node, FlashData& flash) {
  if (!node.has("kernel")) return {flash.fastest, true};
  const auto kernel =
      kAttentionKernels[static_cast<std::size_t>(node.choice("kernel", attention_kernel_names(), 0))].second;
  if (kernel == flash.fastest_is) return {flash.fastest, true};
  const auto [at, fresh] = flash.others.try_emplace(kernel, flash.fastest);
  if (fresh) at->second.points.clear();
  return {at->second, !fresh};
}

// Rates of a kernel that the device's file does not list, from its own points where there are enough of a direction.
void fit_rates(FlashKernel& flash, const DeviceData& data) {
  constexpr int kEnough = 3;
  const FlopRate peak = data.device.peak_bf16.per_s() > 0 ? data.device.peak_bf16 : data.device.peak_fp32;
  const FlashRate start{static_cast<double>(peak.per_s()) / 2, 0.5, 100, 0.8};  // as a calibration starts
  for (const bool backward : {false, true}) {
    if (std::count_if(flash.points.begin(), flash.points.end(),
                      [&](const FlashPoint& p) { return p.backward == backward; }) < kEnough)
      continue;
    FlashRate& rate = backward ? flash.backward : flash.forward;
    rate = fit_flash_rate(flash.points, backward, data.device.sms, data.kernel_time.seconds(), start);
  }
}

// Sustained or burst: tables of later files say which they are, and bursts are what the device's own table holds.
void read_measurements(const Node& root, const std::string& file, DeviceData& data, Diagnostics& diagnostics) {
  const Node name = root.get("measurements_for");
  if (name.as_text() != data.device.name)
    name.error(fmt::format("expected '{}', the device of {}", data.device.name, data.device.file));
  if (const Node node = root.get("gemm")) {
    GemmData added;
    const bool sustained = node.choice("clock", {"burst", "sustained"}, 0) == 1;
    const std::string table = table_path(node, file);
    if (auto rows = rows_of(node)) read_gemm_points(file, std::move(rows->text), rows->first_line, added, diagnostics);
    node.finish();
    if (!table.empty()) read_gemm_table(table, added, diagnostics);
    const double to_burst = sustained ? data.gemm.sustained.value : 1;
    for (auto [from, to] : {std::pair{&added.points, &data.gemm.points}, {&added.points_f32, &data.gemm.points_f32}}) {
      for (GemmPoint& point : *from) point.seconds *= to_burst;
      to->insert(to->end(), from->begin(), from->end());
    }
  }
  if (const Node node = root.get("attention")) {
    const std::string table = table_path(node, file);
    const MeasuredKernel measured = measured_kernel(node, data.flash);
    FlashKernel& flash = measured.kernel;
    const std::size_t before = flash.points.size();
    read_flash_rows(node, flash, diagnostics);
    node.finish();
    if (!table.empty()) read_flash_table(table, flash, diagnostics);
    if (!measured.listed) {
      flash.scale = {};  // measured on this very device
      fit_rates(flash, data);
    }
    for (std::size_t i = before; i < flash.points.size(); ++i) {
      flash.points[i].flops_per_second /= flash.scale.value;
      flash.points[i].added = true;
    }
    // The first of equal shapes counts: the latest measurement.
    std::rotate(flash.points.begin(), flash.points.begin() + static_cast<std::ptrdiff_t>(before), flash.points.end());
  }
  if (const Node node = root.get("kernels")) {
    const std::string table = table_path(node, file);
    if (auto rows = rows_of(node))
      read_kernel_points(file, std::move(rows->text), rows->first_line, data.kernels, diagnostics);
    node.finish();
    if (!table.empty()) read_kernel_table(table, data.kernels, diagnostics);
  }
  MeasuredDevice added;
  read_measured(root, added, diagnostics);
  add_measured(added, true, data);
  data.measured.products.insert(data.measured.products.end(), added.products.begin(), added.products.end());
  data.measured.shapes.insert(data.measured.shapes.end(), added.shapes.begin(), added.shapes.end());
  root.get("collectives");  // sim/collective/measurements.h
  if (const auto what = root.get("provenance").get("measured").as_text()) data.device.measured_in.push_back(*what);
  root.finish();
}

}  // namespace

const Range* Fp8Gemm::against_table(const program::Op& op) const {
  const auto* product = std::get_if<program::Gemm>(&op.shape);
  if (product != nullptr && product->row_scales) return &row_scales;
  return op.phase == program::Phase::backward ? &split_accumulation : nullptr;
}

const FlashKernel* FlashData::find(program::AttentionKernel kernel) const {
  if (kernel == program::AttentionKernel::best || kernel == fastest_is) return &fastest;
  const auto found = others.find(kernel);
  if (found != others.end()) return &found->second;
  return kernel == program::AttentionKernel::sdpa_flash ? find(program::AttentionKernel::flash2) : nullptr;
}

std::string measurements_for(const std::string& file) {
  std::error_code error;
  const bool yaml = file.ends_with(".yaml") || file.ends_with(".yml");
  if (!yaml || !std::filesystem::is_regular_file(file, error)) return "";
  Diagnostics ignored;
  return Document::from_file(file, ignored).root().get("measurements_for").as_text().value_or("");
}

DeviceData read_device_files(const std::vector<std::string>& files) {
  if (files.empty()) throw InputError(Diagnostic{"", 0, 0, "costs", "no device file", ""});
  DeviceData data;
  Diagnostics diagnostics;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const Document document = Document::from_file(files[i], diagnostics);
    const Node root = document.root();
    const std::int64_t version = root.integer("rehearse_device");
    if (root.has("rehearse_device") && version != kSchema)
      root.get("rehearse_device").error(fmt::format("expected {}, the version this program reads", kSchema));
    if (i == 0) {
      if (root.has("measurements_for"))
        root.get("measurements_for").error("the first file must be a device; this one only adds measurements to one");
      read_device(root, files[i], data, diagnostics);
    } else {
      read_measurements(root, files[i], data, diagnostics);
    }
    const Device& device = data.device;
    if (!data.gemm.points.empty() && device.peak_bf16.per_s() <= 0 && device.peak_fp16.per_s() <= 0)
      root.error(fmt::format("the gemm table has 16-bit products, but {} gives no peak rate for them", device.file));
    diagnostics.throw_if_any();
  }
  return data;
}

}  // namespace rehearse::cost
