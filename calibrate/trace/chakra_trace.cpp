// See chakra_trace.h. The wire format is protobuf's (protobuf.dev, "Encoding"): a key of field number and wire type,
// then a varint, eight or four bytes, or a length and that many bytes. Fields that are not known are skipped.
#include "calibrate/trace/chakra_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>

#include "sim/base/diagnostics.h"
#include "sim/base/input_files.h"
#include "sim/base/interrupt.h"

namespace rehearse::calibrate::trace {
namespace {

constexpr std::uintmax_t kLargestChakra = std::uintmax_t{1} << 31;
constexpr std::int64_t kMostChakraElements = std::int64_t{1} << 50;

enum class Wire : unsigned char { varint = 0, eight = 1, bytes = 2, four = 5 };

// A message, or the file, read from front to back.
class ProtoBytes {
 public:
  ProtoBytes(std::string_view all, const std::string& file, std::size_t offset = 0)
      : all_(all), file_(file), offset_(offset) {}

  bool done() const { return at_ == all_.size(); }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (done()) refuse("ends in the middle of a number");
      const auto byte = static_cast<unsigned char>(all_[at_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    refuse("holds a number of more than 64 bits");
  }
  ProtoBytes message() {
    const std::uint64_t length = varint();
    if (length > all_.size() - at_)
      refuse(fmt::format("says that {} bytes follow, and {} do", length, all_.size() - at_));
    const ProtoBytes part(all_.substr(at_, static_cast<std::size_t>(length)), file_, offset_ + at_);
    at_ += static_cast<std::size_t>(length);
    return part;
  }
  std::string text() { return std::string(message().all_); }
  // The next field's number and kind.
  std::pair<std::uint64_t, Wire> field() {
    const std::uint64_t key = varint();
    const auto wire = static_cast<Wire>(key & 7);
    if ((wire != Wire::varint && wire != Wire::eight && wire != Wire::bytes && wire != Wire::four) || key >> 3 == 0)
      refuse("is no Chakra execution trace: expected a field of a protobuf message");
    return {key >> 3, wire};
  }
  void skip(Wire wire) {
    if (wire == Wire::varint) varint();
    if (wire == Wire::bytes) message();
    if (wire != Wire::eight && wire != Wire::four) return;
    const std::size_t size = wire == Wire::eight ? 8 : 4;
    if (all_.size() - at_ < size) refuse("ends in the middle of a number");
    at_ += size;
  }
  [[noreturn]] void refuse(const std::string& message) const {
    throw InputError(Diagnostic{file_, 0, 0, "", fmt::format("{}, at byte {}", message, offset_ + at_),
                                "a PyTorch profiler's trace (JSON), or a Chakra execution trace (.et)"});
  }

 private:
  std::string_view all_;
  const std::string& file_;
  std::size_t offset_, at_ = 0;
};

struct ChakraNode {
  std::uint64_t id = 0, start = 0, duration = 0, parent = 0;
  std::string name, shapes, types;
  int type = 0;
  std::map<std::string, std::int64_t> attributes;

  std::int64_t attribute(const std::string& key, std::int64_t otherwise) const {
    const auto found = attributes.find(key);
    return found == attributes.end() ? otherwise : found->second;
  }
};

// Numbers and truths; texts and lists say nothing that is asked for.
void read_attribute(ProtoBytes message, std::map<std::string, std::int64_t>& into) {
  constexpr std::uint64_t kName = 1, kInt32 = 7, kInt64 = 9, kUint32 = 11, kUint64 = 13, kBool = 27;
  std::string name;
  std::optional<std::int64_t> value;
  while (!message.done()) {
    const auto [number, wire] = message.field();
    const bool plain =
        number == kInt32 || number == kInt64 || number == kUint32 || number == kUint64 || number == kBool;
    if (number == kName && wire == Wire::bytes)
      name = message.text();
    else if (plain && wire == Wire::varint)
      value = static_cast<std::int64_t>(message.varint());
    else
      message.skip(wire);
  }
  if (value) into[name] = *value;
}

void read_inputs(ProtoBytes message, ChakraNode& node) {
  constexpr std::uint64_t kShapes = 2, kTypes = 3;
  while (!message.done()) {
    const auto [number, wire] = message.field();
    if (number == kShapes && wire == Wire::bytes)
      node.shapes = message.text();
    else if (number == kTypes && wire == Wire::bytes)
      node.types = message.text();
    else
      message.skip(wire);
  }
}

// Repeated numbers come one by one or packed; the first is who launched the node.
std::uint64_t first_number(ProtoBytes& message, Wire wire) {
  if (wire == Wire::varint) return message.varint();
  ProtoBytes packed = message.message();
  return packed.done() ? 0 : packed.varint();
}

ChakraNode read_node(ProtoBytes message) {
  constexpr std::uint64_t kId = 1, kName = 2, kType = 3, kControl = 4, kStart = 6, kDuration = 7, kInputs = 8,
                          kAttribute = 10;
  ChakraNode node;
  while (!message.done()) {
    const auto [number, wire] = message.field();
    if (number == kId && wire == Wire::varint)
      node.id = message.varint();
    else if (number == kName && wire == Wire::bytes)
      node.name = message.text();
    else if (number == kType && wire == Wire::varint)
      node.type = static_cast<int>(std::min<std::uint64_t>(message.varint(), 1 << 20));
    else if (number == kControl && (wire == Wire::varint || wire == Wire::bytes)) {
      const std::uint64_t parent = first_number(message, wire);
      if (node.parent == 0) node.parent = parent;
    } else if (number == kStart && wire == Wire::varint)
      node.start = message.varint();
    else if (number == kDuration && wire == Wire::varint)
      node.duration = message.varint();
    else if (number == kInputs && wire == Wire::bytes)
      read_inputs(message.message(), node);
    else if (number == kAttribute && wire == Wire::bytes)
      read_attribute(message.message(), node.attributes);
    else
      message.skip(wire);
  }
  return node;
}

// "[[128, 64], [64, 32], []]" as Python writes it: a list of the inputs' dimensions. A list of tensors is the sum of
// its elements.
std::vector<std::vector<std::int64_t>> shapes_of(const std::string& text) {
  std::vector<std::vector<std::int64_t>> inputs;
  std::vector<std::int64_t> inner;
  int depth = 0;
  bool nested = false;
  for (const char* at = text.data(); at < text.data() + text.size(); ++at) {
    if (*at == '[') {
      ++depth;
      if (depth == 2) inputs.emplace_back();
      nested = depth > 2;
      if (nested) inner.clear();
    } else if (*at == ']') {
      if (depth == 3 && !inputs.empty()) {
        std::int64_t product = inner.empty() ? 0 : 1;
        for (const std::int64_t d : inner) product = d > 0 && product < kMostChakraElements / d ? product * d : 0;
        std::vector<std::int64_t>& sum = inputs.back();
        sum = {std::min(kMostChakraElements, (sum.empty() ? 0 : sum.front()) + product)};
      }
      --depth;
      nested = depth > 2;
    } else if (*at >= '0' && *at <= '9') {
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(at, text.data() + text.size(), value);
      if (error != std::errc()) value = 0;
      value = std::min(value, kMostChakraElements);
      if (depth == 2) inputs.back().push_back(value);
      if (depth == 3) inner.push_back(value);
      if (depth == 1) inputs.emplace_back();  // a number in the place of a list
      at = end - 1;
    }
  }
  return inputs;
}

// "['Tensor(c10::BFloat16)', 'Int']": c10::BFloat16, Int.
std::vector<std::string> types_of(const std::string& text) {
  std::vector<std::string> types;
  for (std::size_t at = 0; (at = text.find_first_of("'\"", at)) != std::string::npos;) {
    const std::size_t end = text.find(text[at], at + 1);
    if (end == std::string::npos) break;
    std::string type = text.substr(at + 1, end - at - 1);
    if (const std::size_t tensor = type.find("Tensor("); tensor != std::string::npos) {
      type.erase(0, tensor + 7);
      type.erase(std::min(type.find(')'), type.size()));
    }
    types.push_back(std::move(type));
    at = end + 1;
  }
  return types;
}

Operator operator_of_node(const ChakraNode& node) {
  Operator op;
  op.name = node.name;
  op.shapes = !node.shapes.empty();
  const auto shapes = shapes_of(node.shapes);
  const std::vector<std::string> types = types_of(node.types);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    Tensor t;
    t.dims = shapes[i];
    if (i < types.size()) t.type = types[i];
    op.inputs.push_back(std::move(t));
    op.scalars.emplace_back();
  }
  return op;
}

// As ProcessGroupNCCL calls them; "" for what no program has.
const char* collective_name(std::int64_t type) {
  constexpr const char* kNames[] = {"allreduce", "",          "_allgather_base", "",
                                    "",          "broadcast", "alltoall_base",   "_reduce_scatter_base"};
  return type >= 0 && type < static_cast<std::int64_t>(std::size(kNames)) ? kNames[type] : "";
}

class ChakraReader {
 public:
  explicit ChakraReader(const std::string& file) { trace_.file = file; }

  void add(const ChakraNode& node) {
    constexpr int kSend = 5, kReceive = 6, kCollective = 7;
    if (node.attribute("is_cpu_op", 1) != 0) {
      operators_[node.id] = static_cast<std::int32_t>(trace_.operators.size());
      trace_.operators.push_back(operator_of_node(node));
      return;
    }
    constexpr std::uint64_t kLongest = 1'000'000'000;  // us: no kernel takes longer, and times add up in picoseconds
    Kernel k;                                          // of less than a microsecond: 0
    k.dur = static_cast<double>(std::min(node.duration, kLongest));
    k.ts = node.start > 0 ? static_cast<double>(node.start) : now_;
    k.issued = k.ts;
    now_ = std::max(now_, k.ts) + k.dur;
    k.stream = static_cast<int>(std::clamp<std::int64_t>(node.attribute("stream", 0), 0, 1 << 24));
    k.name = static_cast<std::int32_t>(trace_.names.size());
    trace_.names.push_back(node.name);
    if (node.type == kSend || node.type == kReceive || node.type == kCollective) {
      Collective c;
      c.name = node.type == kSend      ? "send"
               : node.type == kReceive ? "recv"
                                       : collective_name(node.attribute("comm_type", -1));
      c.dtype = "Byte";
      c.in = c.out = std::clamp<std::int64_t>(node.attribute("comm_size", 0), 0, kMostChakraElements);
      k.collective = static_cast<std::int32_t>(trace_.collectives.size());
      trace_.collectives.push_back(std::move(c));
    }
    kernels_of_.push_back(node.parent);
    trace_.kernels.push_back(k);
  }

  // Operators may stand behind their kernels.
  Trace finish() {
    std::map<std::uint64_t, std::int32_t> calls;
    for (std::size_t i = 0; i < trace_.kernels.size(); ++i) {
      const auto op = operators_.find(kernels_of_[i]);
      if (op == operators_.end()) continue;
      const auto [call, fresh] = calls.try_emplace(op->first, static_cast<std::int32_t>(trace_.calls.size()));
      if (fresh) trace_.calls.push_back({op->second, trace_.kernels[i].ts});
      trace_.kernels[i].call = call->second;
    }
    std::stable_sort(trace_.kernels.begin(), trace_.kernels.end(),
                     [](const Kernel& a, const Kernel& b) { return a.ts < b.ts; });
    return std::move(trace_);
  }

 private:
  Trace trace_;
  std::map<std::uint64_t, std::int32_t> operators_;  // by node
  std::vector<std::uint64_t> kernels_of_;            // the node that launched each
  double now_ = 0;
};

}  // namespace

bool is_chakra_trace(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  const int first = in.get();
  constexpr int kGzip = 0x1f;
  return in && first != '{' && first != kGzip && first != ' ' && first != '\n' && first != '\r' && first != '\t';
}

Trace read_chakra_trace(const std::string& file) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (error || size > kLargestChakra || !std::filesystem::is_regular_file(file, error))
    throw InputError(
        Diagnostic{file, 0, 0, "", "is no regular file of at most 2 GiB", "a Chakra execution trace (.et)"});
  std::string all(static_cast<std::size_t>(size), '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(all.data(), static_cast<std::streamsize>(all.size()));
  all.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, in.gcount())));
  note_input(file);
  ProtoBytes bytes(all, file);
  ChakraReader reader(file);
  for (bool first = true; !bytes.done(); first = false) {
    check_interrupt();
    ProtoBytes message = bytes.message();
    if (!first) reader.add(read_node(message));  // the first is the metadata
  }
  return reader.finish();
}

}  // namespace rehearse::calibrate::trace
