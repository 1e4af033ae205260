// trace.json.gz: the recorded ops as Chrome trace JSON, one process a rank, one thread a stream, opened by Perfetto and
// chrome://tracing, with the categories and argument names PyTorch Kineto writes (pytorch/kineto 114171d,
// libkineto/src/output_json.cpp and MetadataFieldCatalog.h). Times are microseconds with three decimals, as there; both
// ends of a slice are cut to the nanosecond, so slices that follow one another never overlap. Picoseconds are in
// ops.csv.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "sim/result/json_writer.h"
#include "sim/result/records.h"

namespace rehearse::result {
namespace {

struct CollectiveNames {
  std::string_view ours, kineto;
  bool input_sharded, output_sharded;  // one of the group's equal parts, not the full tensor
};
constexpr CollectiveNames kCollectives[] = {
    {"all_reduce", "allreduce", false, false},
    {"all_gather", "_allgather_base", true, false},
    {"reduce_scatter", "_reduce_scatter_base", false, true},
    {"broadcast", "broadcast", false, false},
    {"all_to_all", "all_to_all", false, false},
    {"reduce", "reduce", false, false},
};

std::string_view kineto_dtype(std::string_view dtype) {
  if (dtype == "f32") return "Float";
  if (dtype == "bf16") return "BFloat16";
  if (dtype == "f16") return "Half";
  if (dtype == "i32") return "Int";
  return dtype == "u8" ? "Byte" : dtype;
}

std::string_view category(const OpName& n) {
  if (n.kind == "input") return "gpu_memcpy";
  return n.kind == "host_sync" ? "cuda_sync" : "kernel";
}

// The arguments of a collective, ready to follow others; "" if the op is none.
std::string collective_arguments(const OpName& n) {
  const auto known = std::find_if(std::begin(kCollectives), std::end(kCollectives),
                                  [&](const CollectiveNames& c) { return c.ours == n.kind; });
  if (known == std::end(kCollectives)) return "";
  const std::int64_t part = n.group_size > 0 ? n.elements / n.group_size : n.elements;
  std::string out = fmt::format(R"(,"Collective name":{},"Group size":{})", json_quoted(known->kineto), n.group_size);
  if (!n.dtype.empty()) out += fmt::format(R"(,"dtype":{})", json_quoted(kineto_dtype(n.dtype)));
  if (n.elements > 0)
    out += fmt::format(R"(,"In msg nelems":{},"Out msg nelems":{})", known->input_sharded ? part : n.elements,
                       known->output_sharded ? part : n.elements);
  if (!n.group.empty()) out += fmt::format(R"(,"Process Group Name":{})", json_quoted(n.group));
  return out;
}

// The parts of a slice that are the same whenever its op runs, escaped once.
struct Slice {
  std::string head, arguments;
};

Slice make_slice(const OpName& n) {
  Slice s;
  s.head = fmt::format(R"({{"ph":"X","cat":"{}","name":{})", category(n), json_quoted(n.op));
  s.arguments = fmt::format(R"("kind":{},"phase":{},"body":{},"shape":{},"coverage":{},"bytes":{},"flops":{:.0f})",
                            json_quoted(n.kind), json_quoted(n.phase), json_quoted(n.body), json_quoted(n.shape),
                            json_quoted(n.coverage), n.bytes, n.flops);
  s.arguments += collective_arguments(n);
  return s;
}

class TraceWriter {
 public:
  TraceWriter(const Result& r, OutputFile& out) : r_(r), out_(out) {}

  void write() {
    out_.write(
        fmt::format("{{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":0,\n"
                    "\"distributedInfo\":{{\"rank\":{},\"world_size\":{}}},\n\"traceName\":{},\n"
                    "\"traceEvents\":[",
                    r_.records.empty() ? 0 : r_.records.front().rank, r_.ranks, json_quoted(r_.scenario_name)));
    for (std::size_t i = 0; i < r_.records.size(); ++i) {
      if (i == 0 || r_.records[i].rank != r_.records[i - 1].rank) begin_rank(r_.records[i]);
      slice(r_.records[i]);
    }
    out_.write("\n]}\n");
  }

 private:
  void event(std::string_view text) {
    out_.write(first_ ? "\n" : ",\n");
    first_ = false;
    out_.write(text);
  }

  void metadata(std::string_view what, int rank, int thread, std::string_view argument) {
    event(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"ts":0.000,"args":{{{}}}}})", what, rank, thread,
                      argument));
  }

  // Names the process and its threads. Threads are numbered by the first appearance of their stream in the role's text.
  void begin_rank(const OpRecord& record) {
    const int role = role_of(r_, record);
    metadata("process_name", record.rank, 0, fmt::format(R"("name":"rank {}")", record.rank));
    metadata("process_labels", record.rank, 0, fmt::format(R"("labels":"stage {}")", role));
    metadata("process_sort_index", record.rank, 0, fmt::format(R"("sort_index":{})", record.rank));
    threads_.clear();
    for (const auto& body : r_.names.at(role))
      for (const OpName& n : body) {
        const int thread = static_cast<int>(threads_.size());
        if (!threads_.emplace(n.stream, thread).second) continue;
        metadata("thread_name", record.rank, thread, fmt::format(R"("name":{})", json_quoted(n.stream)));
        metadata("thread_sort_index", record.rank, thread, fmt::format(R"("sort_index":{})", thread));
      }
  }

  const Slice& slice_of(int role, const OpRecord& record, const OpName& n) {
    auto& bodies = slices_[role];
    bodies.resize(std::max(bodies.size(), static_cast<std::size_t>(record.body) + 1));
    auto& ops = bodies[static_cast<std::size_t>(record.body)];
    ops.resize(std::max(ops.size(), static_cast<std::size_t>(record.op) + 1));
    Slice& s = ops[static_cast<std::size_t>(record.op)];
    if (s.head.empty()) s = make_slice(n);
    return s;
  }

  void slice(const OpRecord& record) {
    const OpName& n = name_of(r_, record);
    const Slice& s = slice_of(role_of(r_, record), record, n);
    const int thread = threads_.at(n.stream);
    const std::int64_t start = record.start_ps / 1000, length = (record.start_ps + record.duration_ps) / 1000 - start;
    event(fmt::format(R"({},"pid":{},"tid":{},"ts":{}.{:03},"dur":{}.{:03},"args":{{"device":{},"stream":{},"step":{},)"
                      R"("slot":{},"micro_batch":{},{}}}}})",
                      s.head, record.rank, thread, start / 1000, start % 1000, length / 1000, length % 1000,
                      record.rank, thread, record.step, record.slot, micro_batch_of(r_, record), s.arguments));
  }

  const Result& r_;
  OutputFile& out_;
  bool first_ = true;
  std::map<std::string, int> threads_;                     // stream -> tid, of the current rank
  std::map<int, std::vector<std::vector<Slice>>> slices_;  // role -> body -> op
};

}  // namespace

void write_trace(const Result& r, OutputFile& out) {
  TraceWriter(r, out).write();
}

}  // namespace rehearse::result
