#include "sim/cost/measured_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/base/check.h"
#include "sim/base/csv.h"

namespace rehearse::cost {
namespace {

using program::DType;

constexpr double kLeastUs = 1e-3, kMostUs = 1e9;
constexpr double kMostRate = 1e17;  // bytes/s
const std::vector<std::string> kTypes = {"f32", "bf16", "f16", "i32", "u8"};

// A column that files of before there were epilogues lack.
constexpr const char* kEpilogue = "epilogue";
const std::vector<std::string>& epilogues() {
  static const std::vector<std::string> words = {"none", "gelu", "gelu_backward", "bias_gradient"};
  return words;
}

DType dtype_of(const CsvRow& row, std::string_view column) {
  return static_cast<DType>(row.choice(column, kTypes));
}
double seconds_of(const CsvRow& row, std::string_view column) {
  return row.positive_number(column, kLeastUs, kMostUs) * 1e-6;
}
double seconds_or_dash(const CsvRow& row, std::string_view column) {
  return row.number_or_dash(column, kLeastUs, kMostUs) * 1e-6;
}

ProductKey read_key(const CsvRow& row) {
  ProductKey key;
  key.dtype = dtype_of(row, "dtype");
  key.out = dtype_of(row, "out");
  const int layout = row.choice("layout", {"nn", "nt", "tn", "tt"});
  key.transpose_a = (layout & 2) != 0, key.transpose_b = (layout & 1) != 0;
  key.accumulate = row.yes("accumulate");
  key.bias = row.yes("bias");
  if (row.has(kEpilogue)) key.epilogue = static_cast<program::Epilogue>(row.choice(kEpilogue, epilogues()));
  key.m = row.positive_integer("m"), key.n = row.positive_integer("n"), key.k = row.positive_integer("k");
  return key;
}

ProductPoint read_product(const CsvRow& row) {
  ProductPoint p;
  p.key = read_key(row);
  p.tile = {static_cast<int>(row.integer_or_dash("tile_m")), static_cast<int>(row.integer_or_dash("tile_n"))};
  p.stages = static_cast<int>(row.integer_or_dash("stages"));
  p.split = static_cast<int>(std::max<std::int64_t>(1, row.integer_or_dash("split")));
  p.waves = row.number_or_dash("waves", 1e-6, 1e9);
  p.seconds = seconds_of(row, "time_us");
  p.sustained = seconds_or_dash(row, "sustained_us");
  p.first = seconds_or_dash(row, "first_us"), p.best = seconds_or_dash(row, "best_us");
  p.p10 = seconds_or_dash(row, "p10_us"), p.p90 = seconds_or_dash(row, "p90_us");
  p.repetitions = row.integer_or_dash("repetitions");
  p.held_out = row.yes("held_out");
  if (const auto algorithm = row.text("algorithm"); algorithm != "-") p.algorithm = algorithm;
  return p;
}

ShapePoint read_shape(const CsvRow& row) {
  ShapePoint p;
  p.kind = row.text("kind"), p.shape = row.text("shape"), p.operands = row.text("operands");
  p.dtype = dtype_of(row, "dtype");
  p.flops = row.number_or_dash("flops"), p.bytes = row.number_or_dash("bytes");
  p.seconds = seconds_of(row, "time_us");
  p.sustained = seconds_or_dash(row, "sustained_us");
  p.p10 = seconds_or_dash(row, "p10_us"), p.p90 = seconds_or_dash(row, "p90_us");
  p.repetitions = row.integer_or_dash("repetitions");
  p.held_out = row.yes("held_out");
  return p;
}

CopyPoint read_copy(const CsvRow& row) {
  static const std::vector<std::string> directions = {"to_device", "from_device", "on_device", "to_peer"};
  CopyPoint p;
  p.direction = directions[static_cast<std::size_t>(row.choice("direction", directions))];
  p.bytes = row.positive_integer("bytes", std::int64_t{1} << 50);
  p.seconds = seconds_of(row, "time_us");
  return p;
}

InterferencePoint read_interference(const CsvRow& row) {
  InterferencePoint p;
  p.key = read_key(row);
  p.sms_held = static_cast<int>(row.integer_or_dash("sms_held"));
  p.bandwidth_taken = row.number_or_dash("bandwidth_gbs", 1e-3, kMostRate * 1e-9) * 1e9;
  p.slowdown = row.positive_number("slowdown", 0.01, 1e4);
  return p;
}

// The rows of `root.key.rows`, a literal block.
template <typename T>
void read_rows(const Node& root, std::string_view key, const std::vector<std::string>& columns,
               T (*read)(const CsvRow&), std::vector<T>& out, Diagnostics& diagnostics) {
  const Node section = root.get(key);
  if (!section) return;
  const std::string text = section.text("rows");
  const int line = section.get("rows").line() + 1;  // a literal begins below its key
  section.finish();
  if (text.empty()) return;
  CsvColumns heading{columns};
  if (std::erase(heading.names, kEpilogue) > 0) heading.optional = {kEpilogue};
  CsvTable table(root.file(), text, heading, diagnostics, CsvDialect::commented, line);
  while (const CsvRow* row = table.next()) out.push_back(read(*row));
}

LaunchTimes read_launch(const Node& node) {
  LaunchTimes l;
  l.plain = node.time("plain", Time()).seconds(), l.graph = node.time("graph", Time()).seconds();
  l.plain_gap = node.time("plain_gap", Time()).seconds(), l.graph_gap = node.time("graph_gap", Time()).seconds();
  node.finish();
  return l;
}

}  // namespace

const std::vector<std::string>& product_columns() {
  static const std::vector<std::string> columns = {
      "dtype",    "out",     "layout", "accumulate", "bias",        "epilogue", "m",        "n",
      "k",        "tile_m",  "tile_n", "stages",     "split",       "waves",    "time_us",  "sustained_us",
      "first_us", "best_us", "p10_us", "p90_us",     "repetitions", "held_out", "algorithm"};
  return columns;
}
const std::vector<std::string>& shape_columns() {
  static const std::vector<std::string> columns = {"kind",   "shape",  "operands",    "dtype",
                                                   "flops",  "bytes",  "time_us",     "sustained_us",
                                                   "p10_us", "p90_us", "repetitions", "held_out"};
  return columns;
}
const std::vector<std::string>& copy_columns() {
  static const std::vector<std::string> columns = {"direction", "bytes", "time_us"};
  return columns;
}
const std::vector<std::string>& interference_columns() {
  static const std::vector<std::string> columns = {"dtype", "out", "layout", "accumulate", "bias",          "epilogue",
                                                   "m",     "n",   "k",      "sms_held",   "bandwidth_gbs", "slowdown"};
  return columns;
}

void read_measured(const Node& root, MeasuredDevice& measured, Diagnostics& diagnostics) {
  read_rows(root, "products", product_columns(), read_product, measured.products, diagnostics);
  read_rows(root, "shapes", shape_columns(), read_shape, measured.shapes, diagnostics);
  read_rows(root, "copies", copy_columns(), read_copy, measured.copies, diagnostics);
  read_rows(root, "interference", interference_columns(), read_interference, measured.interference, diagnostics);
  if (const Node launch = root.get("launch")) measured.launch = read_launch(launch);
}

ProductKey product_key(const program::Role& role, const program::Op& op) {
  const auto* g = std::get_if<program::Gemm>(&op.shape);
  REHEARSE_CHECK(g != nullptr && !op.writes.empty(), "{} is no product", op.name);
  const DType out = role.buffers[static_cast<std::size_t>(op.writes.front().buffer)].dtype;
  return {op.dtype, out, g->transpose_a, g->transpose_b, g->accumulate, g->bias, g->m, g->n, g->k, g->epilogue};
}

std::string operand_types(const program::Role& role, const program::Op& op) {
  const auto list = [&](const std::vector<program::Operand>& operands) {
    std::string text;
    for (const program::Operand& o : operands)
      text += fmt::format("{}{}", text.empty() ? "" : " ",
                          program::name_of(role.buffers[static_cast<std::size_t>(o.buffer)].dtype));
    return text;
  };
  return list(op.reads) + ">" + list(op.writes);
}

std::string form_text(const ProductKey& key) {
  const std::string_view epilogue = program::name_of(key.epilogue);
  return fmt::format("{}{} {}>{}{}{}{}{}", key.transpose_a ? 't' : 'n', key.transpose_b ? 't' : 'n',
                     program::name_of(key.dtype), program::name_of(key.out), key.accumulate ? " accumulate" : "",
                     key.bias ? " bias" : "", epilogue.empty() ? "" : " ", epilogue);
}

}  // namespace rehearse::cost
