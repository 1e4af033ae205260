// See trace_match.h.
#include "reports/trace_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "reports/op_class.h"
#include "sim/base/interrupt.h"

namespace rehearse::reports {
namespace {

using result::OpRow;
using result::OpText;

// "m=8192 n=4096 k=4096 transpose_b" -> the number behind "m=".
std::optional<std::int64_t> number_in(const std::string& shape, const std::string& name) {
  const std::size_t at = (" " + shape).find(" " + name + "=");
  if (at == std::string::npos) return std::nullopt;
  return std::strtoll(shape.c_str() + at + name.size() + 1, nullptr, 10);
}

std::string class_of(const std::string& kind, bool collective, bool message) {
  if (collective) return "collectives";
  if (message) return "messages";
  const std::string_view name = kernel_class(kind);
  return name.empty() ? "other kernels" : std::string(name);
}

std::string class_of_op(const OpText& op) {
  return class_of(op.kind, is_collective(op), is_message(op));
}

std::string class_of_call(const MeasuredCall& call) {
  OpText op;
  op.kind = call.kind;
  return call.kind.empty() ? "not mapped" : class_of_op(op);
}

class Matcher {
 public:
  explicit Matcher(TraceMatch& m) : m_(m), simulated_(*m.simulated) {
    for (const OpRow& row : simulated_.ops)
      if (row.rank == m.rank && simulated_.text_of(row).kind != "host_sync") rows_.push_back(&row);
    std::stable_sort(rows_.begin(), rows_.end(),
                     [](const OpRow* a, const OpRow* b) { return a->start_ps < b->start_ps; });
    taken_.resize(m.step.calls.size());
  }

  void match() {
    std::map<std::string, Group> groups;
    for (std::size_t c = 0; c < m_.step.calls.size(); ++c) {
      const MeasuredCall& call = m_.step.calls[c];
      if (!call.kind.empty() && !call.key.empty()) groups[call.kind + ' ' + call.key].calls.push_back(c);
    }
    for (const OpRow* row : rows_) {
      const OpText& op = simulated_.text_of(*row);
      groups[op.kind + ' ' + match_key(op)].ops.push_back(row);
    }
    pair_apart(groups);
    for (const auto& [name, group] : groups) pair_group(group);
    // Those whose sizes nobody recorded: by kind and order among what is left.
    std::map<std::string, Group> kinds;
    for (std::size_t c = 0; c < m_.step.calls.size(); ++c)
      if (const MeasuredCall& call = m_.step.calls[c]; !call.kind.empty() && call.key.empty())
        kinds[call.kind].calls.push_back(c);
    for (const OpRow* row : rows_)
      if (!paired_.contains(row)) kinds[simulated_.text_of(*row).kind].ops.push_back(row);
    for (const auto& [name, group] : kinds) pair_in_order(group.ops, group.calls);
    std::sort(m_.pairs.begin(), m_.pairs.end(), [](const TracePair& a, const TracePair& b) { return a.call < b.call; });
  }

  void sum_up() {
    std::map<std::string, TraceClass> classes;
    std::map<std::pair<std::string, std::string>, Unmatched> alone_here, alone_there;
    const auto add = [](Unmatched& u, std::string what, std::string why, std::int64_t count, std::int64_t ps) {
      u.what = std::move(what), u.why = std::move(why);
      u.count += count, u.ps += ps;
    };
    for (const OpRow* row : rows_) {
      const OpText& op = simulated_.text_of(*row);
      TraceClass& c = classes[class_of_op(op)];
      ++c.simulated, c.simulated_ps += row->duration_ps;
      const std::string label = op_label(op, static_cast<int>(simulated_.result.stages.size()));
      if (!paired_.contains(row)) add(alone_here[{label, ""}], label, "", 1, row->duration_ps);
    }
    for (std::size_t i = 0; i < m_.step.calls.size(); ++i) {
      const MeasuredCall& call = m_.step.calls[i];
      TraceClass& c = classes[class_of_call(call)];
      ++c.measured, c.measured_ps += call.duration_ps;
      if (taken_[i]) continue;
      const std::string what = call.op.empty() ? call.kernel : fmt::format("{} ({})", call.op, call.kernel);
      const std::string why =
          call.kind.empty() ? call.why : fmt::format("no {} {} is left in the program", call.kind, call.key);
      add(alone_there[{what, why}], what, why, call.kernels, call.duration_ps);
    }
    for (const TracePair& pair : m_.pairs) {
      TraceClass& c = classes[class_of_op(simulated_.text_of(*pair.op))];
      if (!pair.further) ++c.matched, c.matched_simulated_ps += pair.op->duration_ps;
      c.matched_measured_ps += m_.step.calls[pair.call].duration_ps;
    }
    for (auto& [name, c] : classes) {
      c.name = name;
      m_.classes.push_back(std::move(c));
    }
    list(alone_here, m_.simulated_alone);
    list(alone_there, m_.measured_alone);
  }

 private:
  struct Group {
    std::vector<const OpRow*> ops;   // by start
    std::vector<std::size_t> calls;  // the same
  };

  // A product: sizes of an op as it has them, of a call with the smaller of m and n first.
  struct Product {
    std::int64_t m = 0, n = 0, k = 0;
    std::int64_t start = 0;
    const OpRow* row = nullptr;
    std::size_t call = 0;
    bool alone = false;  // an op without a call of its size in the whole step
    enum class Sum : unsigned char { m, n, k } sum = Sum::n;
  };

  // Products that the program has in one and the run has apart. The other products are looked at with them, in the
  // order of both sides: a part (the queries') may have the size of another product (of what attention gives).
  void pair_apart(std::map<std::string, Group>& groups) {
    std::vector<Product> ops, calls;
    bool apart = false;
    for (const auto& [name, group] : groups) {
      if (!name.starts_with("gemm ")) continue;
      for (const OpRow* row : group.ops) ops.push_back(product_of(*row, group.calls.empty()));
      for (const std::size_t c : group.calls) calls.push_back(product_of(c));
      apart = apart || (!group.ops.empty() && group.calls.empty());
    }
    if (!apart) return;
    const auto earlier = [](const Product& a, const Product& b) { return a.start < b.start; };
    std::stable_sort(ops.begin(), ops.end(), earlier);
    std::stable_sort(calls.begin(), calls.end(), earlier);
    Index index = index_of(calls);
    for (const Product& op : ops) {
      check_interrupt();
      bool further = false;
      for (const std::size_t call : calls_of(op, calls, index)) {
        m_.pairs.push_back({op.row, call, further});
        paired_.insert(op.row);
        taken_[call] = further = true;
      }
    }
    for (auto& [name, group] : groups) {
      std::erase_if(group.ops, [&](const OpRow* row) { return paired_.contains(row); });
      std::erase_if(group.calls, [&](std::size_t c) { return taken_[c]; });
    }
  }

  // Parts are those of an output: its columns add up in forward, the sums over it in the input's gradient, its rows in
  // the weight's; tokens never do.
  Product product_of(const OpRow& row, bool alone) const {
    const std::string& shape = simulated_.text_of(row).shape;
    Product p;
    p.m = number_in(shape, "m").value_or(0), p.n = number_in(shape, "n").value_or(0);
    p.k = number_in(shape, "k").value_or(0);
    if (shape.find("batch=") != std::string::npos) p.m = 0;  // equal to no call
    p.start = row.start_ps, p.row = &row, p.alone = alone;
    const bool a = shape.find("transpose_a") != std::string::npos, b = shape.find("transpose_b") != std::string::npos;
    p.sum = a ? Product::Sum::m : b ? Product::Sum::n : Product::Sum::k;
    return p;
  }
  Product product_of(std::size_t call) const {
    Product p;
    p.start = m_.step.calls[call].start_ps, p.call = call;
    const std::string& key = m_.step.calls[call].key;
    if (key.find(" of ") == std::string::npos) std::sscanf(key.c_str(), "%ldx%ldx%ld", &p.m, &p.n, &p.k);
    return p;
  }

  // Calls that no op has yet, by what they share with an op of which they may be parts and by what they add to it, each
  // list by start. They share k and one of m and n where columns or rows add up, m and n where sums do.
  using Shared = std::tuple<bool, std::int64_t, std::int64_t>;
  struct Waiting {
    std::vector<std::size_t> calls;  // indices of products
    std::size_t first = 0;           // all before it are taken
  };
  using Parts = std::map<std::int64_t, Waiting>;
  using Index = std::map<Shared, Parts>;

  static Index index_of(const std::vector<Product>& calls) {
    Index index;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const auto& [m, n, k] = std::tuple(calls[i].m, calls[i].n, calls[i].k);
      if (m <= 0 || n <= 0 || k <= 0) continue;
      index[{false, k, m}][n].calls.push_back(i);
      if (m != n) index[{false, k, n}][m].calls.push_back(i);
      index[{true, std::min(m, n), std::max(m, n)}][k].calls.push_back(i);
    }
    return index;
  }

  // The earliest that no op has yet: one call of the op's size, or, where the step has none, two or three parts of it.
  std::vector<std::size_t> calls_of(const Product& op, const std::vector<Product>& calls, Index& index) const {
    constexpr std::size_t kMostParts = 3;  // queries, keys and values
    const bool sums = op.sum == Product::Sum::k;
    const std::int64_t whole = sums ? op.k : op.sum == Product::Sum::n ? op.n : op.m;
    const Shared shared = sums ? Shared{true, std::min(op.m, op.n), std::max(op.m, op.n)}
                               : Shared{false, op.k, op.sum == Product::Sum::n ? op.m : op.n};
    const auto found = index.find(shared);
    if (found == index.end()) return {};
    struct Next {
      const std::vector<std::size_t>* calls = nullptr;
      std::size_t at = 0;
      std::int64_t part = 0;
    };
    std::vector<Next> lists;
    const auto taken = [&](std::size_t i) { return static_cast<bool>(taken_[calls[i].call]); };
    for (auto& [part, waiting] : found->second) {
      if (op.alone ? part >= whole : part != whole) continue;
      while (waiting.first < waiting.calls.size() && taken(waiting.calls[waiting.first])) ++waiting.first;
      lists.push_back({&waiting.calls, waiting.first, part});
    }
    std::int64_t sum = 0;
    std::vector<std::size_t> parts;
    while (sum < whole && parts.size() < kMostParts) {
      Next* earliest = nullptr;
      for (Next& list : lists) {
        while (list.at < list.calls->size() && taken((*list.calls)[list.at])) ++list.at;
        if (list.at == list.calls->size()) continue;
        if (earliest == nullptr || (*list.calls)[list.at] < (*earliest->calls)[earliest->at]) earliest = &list;
      }
      if (earliest == nullptr) break;
      parts.push_back(calls[(*earliest->calls)[earliest->at]].call);
      sum += earliest->part;
      ++earliest->at;
    }
    return sum == whole ? parts : std::vector<std::size_t>();
  }

  static void list(std::map<std::pair<std::string, std::string>, Unmatched>& from, std::vector<Unmatched>& to) {
    for (auto& [key, u] : from) to.push_back(std::move(u));
    std::stable_sort(to.begin(), to.end(), [](const Unmatched& a, const Unmatched& b) { return a.ps > b.ps; });
  }

  // Equals of several streams: stream by stream, in the order in which the streams begin, if there are as many.
  void pair_group(const Group& group) {
    check_interrupt();
    std::vector<std::pair<std::string, std::vector<const OpRow*>>> here;
    std::vector<std::pair<int, std::vector<std::size_t>>> there;
    const auto of_stream = [](auto& streams, const auto& name) -> auto& {
      for (auto& [stream, list] : streams)
        if (stream == name) return list;
      streams.push_back({name, {}});
      return streams.back().second;
    };
    for (const OpRow* row : group.ops) of_stream(here, simulated_.text_of(*row).stream).push_back(row);
    for (const std::size_t c : group.calls) of_stream(there, m_.step.calls[c].stream).push_back(c);
    if (here.size() != there.size() || here.size() < 2) return pair_in_order(group.ops, group.calls);
    for (std::size_t s = 0; s < here.size(); ++s) pair_in_order(here[s].second, there[s].second);
  }

  void pair_in_order(const std::vector<const OpRow*>& ops, const std::vector<std::size_t>& calls) {
    for (std::size_t i = 0; i < std::min(ops.size(), calls.size()); ++i) {
      m_.pairs.push_back({ops[i], calls[i]});
      paired_.insert(ops[i]);
      taken_[calls[i]] = true;
    }
  }

  TraceMatch& m_;
  const result::StoredResult& simulated_;
  std::vector<const OpRow*> rows_;
  std::set<const OpRow*> paired_;
  std::vector<bool> taken_;
};

}  // namespace

std::string product_key(std::int64_t m, std::int64_t n, std::int64_t k) {
  return fmt::format("{}x{}x{}", std::min(m, n), std::max(m, n), k);
}

std::string collective_key(std::int64_t bytes, int ranks) {
  return fmt::format("{} B over {} ranks", bytes, ranks);
}

std::string attention_key(std::int64_t micro_batch, std::int64_t heads, std::int64_t seq, std::int64_t head_dim) {
  return fmt::format("{} x {} heads x {} tokens x {}", micro_batch, heads, seq, head_dim);
}

std::string bytes_key(std::int64_t bytes) {
  return fmt::format("{} B", bytes);
}

std::string match_key(const OpText& op) {
  if (op.kind == "gemm") {
    const auto m = number_in(op.shape, "m"), n = number_in(op.shape, "n"), k = number_in(op.shape, "k");
    if (!m || !n || !k) return op.shape;
    const std::int64_t batch = number_in(op.shape, "batch").value_or(1);
    return product_key(*m, *n, *k) + (batch > 1 ? fmt::format(" of {}", batch) : "");
  }
  if (is_collective(op)) return collective_key(op.bytes, op.group_size);
  if (op.kind.starts_with("flash_attention"))
    return attention_key(number_in(op.shape, "micro_batch").value_or(0), number_in(op.shape, "heads").value_or(0),
                         number_in(op.shape, "seq").value_or(0), number_in(op.shape, "head_dim").value_or(0));
  return bytes_key(op.bytes);
}

TraceMatch match_trace(const result::StoredResult& simulated, int rank, TraceStep step) {
  TraceMatch m;
  m.simulated = &simulated;
  m.step = std::move(step);
  m.rank = rank;
  std::stable_sort(m.step.calls.begin(), m.step.calls.end(),
                   [](const MeasuredCall& a, const MeasuredCall& b) { return a.start_ps < b.start_ps; });
  Matcher matcher(m);
  matcher.match();
  matcher.sum_up();
  return m;
}

}  // namespace rehearse::reports
