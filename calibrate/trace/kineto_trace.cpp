#include "calibrate/trace/kineto_trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <istream>
#include <nlohmann/json.hpp>
#include <streambuf>
#include <unordered_map>

#include "sim/base/diagnostics.h"
#include "sim/base/input_files.h"
#include "sim/base/interrupt.h"

namespace rehearse::calibrate::trace {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse_trace(const std::string& file, std::string message, std::string hint = "", int line = 0,
                               int column = 0) {
  throw InputError(Diagnostic{file, line, column, "", std::move(message), std::move(hint)});
}

// The bytes of a file, unpacked if they are gzip. A pipe or a device is refused: it may never end.
class TraceBytes final : public std::streambuf {
 public:
  TraceBytes(const std::string& path, const std::function<void(double)>& progress)
      : path_(path), progress_(progress), buffer_(1 << 18, '\0') {
    if (path.find('\0') != std::string::npos) refuse_trace("''", "the file's name holds a NUL byte");
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0) refuse_trace(path, fmt::format("cannot be read: {}", std::strerror(errno)));
    struct stat status {};
    const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    if (regular) file_ = gzdopen(descriptor, "rb");
    if (file_ == nullptr) {
      ::close(descriptor);
      refuse_trace(path, "is no regular file, expected a profiler's trace");
    }
    size_ = std::max<double>(1, static_cast<double>(status.st_size));
    gzbuffer(file_, 1 << 18);
    note_input(path);
  }
  TraceBytes(const TraceBytes&) = delete;
  TraceBytes& operator=(const TraceBytes&) = delete;
  ~TraceBytes() override { gzclose(file_); }
  bool failed() const { return failed_; }

 protected:
  int_type underflow() override {
    check_interrupt();
    const int got = failed_ ? 0 : gzread(file_, buffer_.data(), static_cast<unsigned>(buffer_.size()));
    int error = Z_OK;
    gzerror(file_, &error);
    failed_ = failed_ || got < 0 || (error != Z_OK && error != Z_STREAM_END);
    if (got <= 0) return traits_type::eof();
    if (progress_) progress_(std::clamp(static_cast<double>(gzoffset(file_)) / size_, 0.0, 1.0));
    setg(buffer_.data(), buffer_.data(), buffer_.data() + got);
    return traits_type::to_int_type(buffer_.front());
  }

 private:
  std::string path_;
  const std::function<void(double)>& progress_;
  std::string buffer_;
  gzFile file_ = nullptr;
  double size_ = 1;
  bool failed_ = false;
};

double number(const Json& object, const char* key, double otherwise = 0) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : otherwise;
}

// Kineto writes some integers as text.
std::int64_t integer(const Json& object, const char* key, std::int64_t otherwise) {
  const auto found = object.find(key);
  if (found == object.end()) return otherwise;
  if (found->is_number_integer()) return found->get<std::int64_t>();
  std::int64_t value = otherwise;
  if (const auto* text = found->get_ptr<const std::string*>())
    std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

std::string text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

constexpr std::int64_t kMostElements = std::int64_t{1} << 50;

std::int64_t product(const std::vector<std::int64_t>& dims) {
  std::int64_t all = 1;
  for (const std::int64_t d : dims) all = d > 0 && all < kMostElements / d ? all * d : 0;
  return dims.empty() ? 0 : all;
}

std::vector<std::int64_t> integers_of(const Json& list) {
  std::vector<std::int64_t> values;
  for (const Json& item : list)
    if (item.is_number_integer())
      values.push_back(std::clamp<std::int64_t>(item.get<std::int64_t>(), 0, kMostElements));
  return values;
}

// [4096, 512] as it is; [[4096], [512, 8]], a list of tensors, as the sum of its elements.
std::vector<std::int64_t> dims_of(const Json& item) {
  const bool list = std::any_of(item.begin(), item.end(), [](const Json& one) { return one.is_array(); });
  if (!list) return integers_of(item);
  std::int64_t sum = 0;
  for (const Json& one : item) sum = std::min(kMostElements, sum + product(integers_of(one)));
  return {sum};
}

// The operator an event belongs to; older releases write the key so. 0: none.
std::int64_t external_id(const Json& args) {
  return integer(args, "External id", integer(args, "external id", 0));
}

// The value of `key` if it is a list; otherwise an empty one.
const Json& list_of(const Json& object, const char* key) {
  static const Json none = Json::array();
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : none;
}

Operator operator_of(const std::string& name, const Json& args) {
  Operator op;
  op.name = name;
  op.shapes = args.contains("Input Dims");
  const Json &dims = list_of(args, "Input Dims"), &strides = list_of(args, "Input Strides"),
             &concrete = list_of(args, "Concrete Inputs");
  const Json& types = args.contains("Input type") ? list_of(args, "Input type") : list_of(args, "Input Type");
  for (std::size_t i = 0; i < dims.size(); ++i) {
    Tensor t;
    if (i < types.size() && types[i].is_string()) t.type = types[i].get<std::string>();
    if (dims[i].is_array()) t.dims = dims_of(dims[i]);
    if (i < strides.size() && strides[i].is_array()) t.strides = integers_of(strides[i]);
    if (t.strides.size() != t.dims.size()) t.strides.clear();
    op.inputs.push_back(std::move(t));
    op.scalars.push_back(i < concrete.size() && concrete[i].is_string() ? concrete[i].get<std::string>() : "");
  }
  return op;
}

// Operators of which a number or a flag matters. Those of others, as of views, differ from call to call.
bool takes_scalars(const std::string& name) {
  return name.find("attention") != std::string::npos || name.find("flash") != std::string::npos ||
         name.find("embedding") != std::string::npos || name.find("layer_norm") != std::string::npos;
}

// "[0, 1, 2, 3]"; nothing where some are left out ("...").
std::vector<int> ranks_of(const std::string& said) {
  if (said.find("...") != std::string::npos) return {};
  std::vector<int> ranks;
  const char* const end = said.data() + said.size();
  for (const char* at = said.data(); at < end;) {
    int rank = 0;
    const auto [next, error] = std::from_chars(at, end, rank);
    if (error == std::errc()) ranks.push_back(rank);
    at = error == std::errc() ? next : at + 1;
  }
  return ranks;
}

Collective collective_of(const Json& args) {
  Collective c;
  c.name = text(args, "Collective name");
  c.dtype = text(args, "dtype");
  c.in = std::clamp<std::int64_t>(integer(args, "In msg nelems", 0), 0, kMostElements);
  c.out = std::clamp<std::int64_t>(integer(args, "Out msg nelems", 0), 0, kMostElements);
  c.size = static_cast<int>(std::clamp<std::int64_t>(integer(args, "Group size", 0), 0, 1 << 24));
  const std::string ranks = text(args, "Process Group Ranks");
  c.ranks = ranks_of(ranks);
  const std::int64_t stride = integer(args, "Global rank stride", 0), start = integer(args, "Global rank start", 0);
  constexpr int kMostListed = 1 << 16;
  if (c.ranks.empty() && stride > 0 && stride <= kMostListed && start >= 0 && start <= kMostListed &&
      c.size <= kMostListed)
    for (int i = 0; i < c.size; ++i) c.ranks.push_back(static_cast<int>(start + i * stride));
  if (static_cast<int>(c.ranks.size()) != c.size) c.ranks.clear();
  c.group = text(args, "Process Group Name") + ' ' + ranks;
  return c;
}

// An index for each distinct text.
class Interned {
 public:
  std::pair<std::int32_t, bool> add(const std::string& what) {
    const auto [at, fresh] = index_.try_emplace(what, static_cast<std::int32_t>(index_.size()));
    return {at->second, fresh};
  }

 private:
  std::unordered_map<std::string, std::int32_t> index_;
};

class Reader {
 public:
  explicit Reader(const std::string& file) { trace_.file = file; }

  // The parser's callback: an event is looked at when it is complete, and then dropped.
  bool keep(int depth, Json::parse_event_t event, Json& value) {
    using Event = Json::parse_event_t;
    if (event == Event::key && depth == 1) {
      section_ = value.get<std::string>();
      return section_ == "traceEvents" || section_ == "deviceProperties" || section_ == "distributedInfo";
    }
    if (event == Event::array_start && depth == 1 && section_ == "traceEvents") has_events_ = true;
    if (section_ != "traceEvents" || depth != 2) return true;
    if (event == Event::object_end) look(value);
    return event != Event::object_end && event != Event::array_end && event != Event::value;
  }

  Trace finish(const Json& rest) {
    if (!rest.is_object() || !has_events_)
      refuse_trace(trace_.file, "is no profiler's trace: expected a JSON mapping with the list traceEvents",
                   "export one with prof.export_chrome_trace(\"trace.json.gz\")");
    const Json& devices = list_of(rest, "deviceProperties");
    for (const Json& device : devices)
      if (device.is_object() && trace_.gpu.empty()) trace_.gpu = text(device, "name");
    trace_.gpus_listed = static_cast<int>(devices.size());
    if (const auto info = rest.find("distributedInfo"); info != rest.end() && info->is_object()) {
      trace_.rank = static_cast<int>(std::clamp<std::int64_t>(integer(*info, "rank", -1), -1, 1 << 24));
      trace_.world = static_cast<int>(std::clamp<std::int64_t>(integer(*info, "world_size", 0), 0, 1 << 24));
    }
    link();
    const auto earlier = [](const auto& a, const auto& b) { return a.ts < b.ts; };
    std::stable_sort(trace_.kernels.begin(), trace_.kernels.end(), earlier);
    std::stable_sort(trace_.steps.begin(), trace_.steps.end(), earlier);
    drop_steps_behind_the_last_kernel();
    return std::move(trace_);
  }

 private:
  void look(const Json& event) {
    const auto args = event.find("args");
    static const Json none = Json::object();
    const Json& a = args != event.end() && args->is_object() ? *args : none;
    const std::string category = text(event, "cat");
    if (category == "kernel" || category == "Kernel") {
      add_kernel(event, a, false);
    } else if (category == "gpu_memcpy" || category == "gpu_memset" || category == "Memcpy" || category == "Memset") {
      add_kernel(event, a, true);
    } else if (category == "cpu_op" || category == "Operator") {
      add_call(event, a);
    } else if (category == "cuda_runtime" || category == "cuda_driver" || category == "Runtime") {
      add_launch(event, a);
    } else if (category == "user_annotation" || category.empty()) {
      add_step(event);
    }
  }

  std::int32_t interned_collective(const Json& args) {
    if (!args.contains("Collective name")) return -1;
    Collective c = collective_of(args);
    const auto [index, fresh] =
        collectives_.add(fmt::format("{}|{}|{}|{}|{}|{}", c.name, c.dtype, c.in, c.out, c.size, c.group));
    if (fresh) trace_.collectives.push_back(std::move(c));
    return index;
  }

  void add_kernel(const Json& event, const Json& args, bool copy) {
    Kernel k;
    k.ts = number(event, "ts"), k.dur = number(event, "dur");
    k.issued = k.ts, k.copy = copy;
    if (!(k.dur > 0)) return;
    k.device = static_cast<int>(integer(args, "device", 0));
    k.stream = static_cast<int>(integer(args, "stream", 0));
    const std::string name = text(event, "name");
    const auto [index, fresh] = names_.add(name);
    if (fresh) trace_.names.push_back(name);
    k.name = index;
    k.collective = interned_collective(args);
    trace_.kernels.push_back(k);
    kernel_ids_.emplace_back(external_id(args), integer(args, "correlation", -1));
  }

  void add_call(const Json& event, const Json& args) {
    const std::int64_t id = external_id(args);
    if (id <= 0) return;
    const std::string name = text(event, "name");
    if (name == "record_param_comms") {
      if (const std::int32_t c = interned_collective(args); c >= 0) collective_of_call_[id] = c;
    }
    std::string key = name;
    for (const char* part : {"Input Dims", "Input Strides", "Input type", "Input Type", "Concrete Inputs"})
      if (const auto found = args.find(part);
          found != args.end() && (takes_scalars(name) || std::string_view(part) != "Concrete Inputs"))
        key += '|' + found->dump(-1, ' ', false, Json::error_handler_t::replace);
    const auto [index, fresh] = operators_.add(key);
    if (fresh) {
      trace_.operators.push_back(operator_of(name, args));
      if (std::vector<std::string>& s = trace_.operators.back().scalars; !takes_scalars(name)) s.assign(s.size(), "");
    }
    calls_.insert_or_assign(id, Call{index, number(event, "ts")});
  }

  void add_launch(const Json& event, const Json& args) {
    const std::int64_t correlation = integer(args, "correlation", -1);
    if (correlation <= 0) return;
    const std::int64_t id = external_id(args);
    const auto [known, fresh] = launches_.try_emplace(correlation, Launch{id, number(event, "ts")});
    if (!fresh && known->second.id <= 0) known->second = {id, number(event, "ts")};
  }

  // The host's side of a step: the device's (gpu_user_annotation) begins when its first kernel does.
  void add_step(const Json& event) {
    const std::string name = text(event, "name");
    if (!name.starts_with("ProfilerStep#") || !(number(event, "dur") > 0)) return;
    trace_.steps.push_back({name, number(event, "ts"), number(event, "dur")});
  }

  // prof.step() begins a step that a loop may leave without doing anything in it but copies to the host.
  void drop_steps_behind_the_last_kernel() {
    if (!trace_.has_kernels()) return;
    double last = -1e300;
    for (const Kernel& k : trace_.kernels)
      if (!k.copy) last = std::max(last, k.issued);
    if (last == -1e300) return;
    while (!trace_.steps.empty() && trace_.steps.back().ts > last) trace_.steps.pop_back();
  }

  // Kernels to calls: by the operator's id, or that of the launch with the kernel's correlation.
  void link() {
    std::unordered_map<std::int64_t, std::int32_t> index;
    for (std::size_t i = 0; i < trace_.kernels.size(); ++i) {
      auto [id, correlation] = kernel_ids_[i];
      Kernel& k = trace_.kernels[i];
      const auto launch = launches_.find(correlation);
      if (launch != launches_.end()) k.issued = launch->second.ts;
      if (!calls_.contains(id)) id = launch == launches_.end() ? 0 : launch->second.id;
      if (const auto c = collective_of_call_.find(id); c != collective_of_call_.end() && k.collective < 0)
        k.collective = c->second;
      const auto call = calls_.find(id);
      if (call == calls_.end()) continue;
      const auto [at, fresh] = index.try_emplace(id, static_cast<std::int32_t>(trace_.calls.size()));
      if (fresh) trace_.calls.push_back(call->second);
      k.call = at->second, k.issued = call->second.ts;
    }
  }

  struct Launch {
    std::int64_t id = 0;  // External id; 0: of no operator
    double ts = 0;
  };

  Trace trace_;
  std::string section_;
  bool has_events_ = false;
  Interned names_, operators_, collectives_;
  std::vector<std::pair<std::int64_t, std::int64_t>> kernel_ids_;  // External id, correlation
  std::unordered_map<std::int64_t, Call> calls_;                   // by External id
  std::unordered_map<std::int64_t, Launch> launches_;              // by correlation
  std::unordered_map<std::int64_t, std::int32_t> collective_of_call_;
};

// "line 3, column 14" of nlohmann's message.
std::pair<int, int> position_of(const std::string& message) {
  std::pair<int, int> at{0, 0};
  const auto read = [&](const char* word, int& value) {
    const std::size_t found = message.find(word);
    if (found == std::string::npos) return;
    const char* const from = message.data() + found + std::string_view(word).size();
    std::from_chars(from, message.data() + message.size(), value);
  };
  read("line ", at.first);
  read("column ", at.second);
  return at;
}

}  // namespace

std::int64_t Tensor::elements() const {
  return product(dims);
}

bool Trace::has_kernels() const {
  return std::any_of(kernels.begin(), kernels.end(), [](const Kernel& k) { return !k.copy; });
}

Trace read_trace(const std::string& file, const std::function<void(double)>& progress) {
  TraceBytes bytes(file, progress);
  std::istream in(&bytes);
  Reader reader(file);
  Json rest;
  try {
    rest = Json::parse(
        in, [&](int depth, Json::parse_event_t event, Json& value) { return reader.keep(depth, event, value); });
  } catch (const Json::exception& error) {
    if (bytes.failed()) refuse_trace(file, "is broken gzip: it ends early or was changed", "export the trace again");
    const auto [line, column] = position_of(error.what());
    refuse_trace(file, "is broken JSON: the trace ends early or was changed",
                 "a trace is whole once the profiler's context has ended", line, column);
  }
  if (bytes.failed()) refuse_trace(file, "is broken gzip: it ends early or was changed", "export the trace again");
  return reader.finish(rest);
}

}  // namespace rehearse::calibrate::trace
