// See report.h.
#include "execute/report.h"

#include <cstring>
#include <type_traits>

#include "sim/base/check.h"

namespace rehearse::execute {
namespace {

template <class T>
void put(std::string& out, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
template <class T>
void put(std::string& out, const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  put(out, static_cast<std::uint64_t>(values.size()));
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}
void put(std::string& out, const std::string& text) {
  put(out, std::vector<char>(text.begin(), text.end()));
}
void put(std::string& out, const std::vector<result::ProductUse>& products) {
  put(out, static_cast<std::uint64_t>(products.size()));
  for (const result::ProductUse& p : products) {
    put(out, p.form);
    for (const std::int64_t size : {p.m, p.n, p.k}) put(out, size);
    put(out, p.algorithm);
  }
}

void put(std::string& out, const std::vector<model::RoutedChoices>& routing) {
  put(out, static_cast<std::uint64_t>(routing.size()));
  for (const model::RoutedChoices& t : routing) {
    for (const std::int64_t at : {t.step, t.micro_batch, t.layer, t.data, t.context, t.tensor}) put(out, at);
    for (const std::int64_t at : {t.first_sequence, t.sequences}) put(out, at);
    put(out, t.rows);
    put(out, t.positions);
    put(out, t.chosen);
  }
}

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}
  template <class T>
  void get(T& value) {
    copy(&value, sizeof value);
  }
  template <class T>
  void get(std::vector<T>& values) {
    std::uint64_t count = 0;
    get(count);
    REHEARSE_CHECK(count <= left_.size() / sizeof(T), "a report ends early");
    values.resize(count);
    copy(values.data(), count * sizeof(T));
  }
  void get(std::string& text) {
    std::vector<char> letters;
    get(letters);
    text.assign(letters.begin(), letters.end());
  }
  void get(std::vector<result::ProductUse>& products) {
    std::uint64_t count = 0;
    get(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      result::ProductUse& p = products.emplace_back();
      get(p.form);
      for (std::int64_t* size : {&p.m, &p.n, &p.k}) get(*size);
      get(p.algorithm);
    }
  }
  void get(std::vector<model::RoutedChoices>& routing) {
    std::uint64_t count = 0;
    get(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      model::RoutedChoices& t = routing.emplace_back();
      for (std::int64_t* at : {&t.step, &t.micro_batch, &t.layer, &t.data, &t.context, &t.tensor}) get(*at);
      for (std::int64_t* at : {&t.first_sequence, &t.sequences}) get(*at);
      get(t.rows);
      get(t.positions);
      get(t.chosen);
    }
  }
  bool done() const { return left_.empty(); }

 private:
  void copy(void* to, std::size_t bytes) {
    REHEARSE_CHECK(bytes <= left_.size(), "a report ends early");
    if (bytes > 0) std::memcpy(to, left_.data(), bytes);
    left_.remove_prefix(bytes);
  }
  std::string_view left_;
};

}  // namespace

std::string pack(const Report& report) {
  std::string out;
  put(out, report.peak_rss_bytes);
  put(out, static_cast<std::uint64_t>(report.ranks.size()));
  for (const RankReport& r : report.ranks) {
    put(out, r.rank);
    put(out, r.shares);
    put(out, r.records);
    put(out, r.parameters);
    put(out, r.loss_scale);
    put(out, r.arena_bytes);
    put(out, r.transfer_starts);
    put(out, r.transfer_waits);
    put(out, r.device);
    put(out, r.products);
    put(out, r.checkpoints);
    put(out, r.first_weights_s);
    put(out, r.routing);
  }
  put(out, static_cast<std::uint64_t>(report.served.workers.size()));
  for (const WorkerRecord& w : report.served.workers) put(out, w.worker), put(out, w.ends);
  put(out, static_cast<std::uint64_t>(report.served.servers.size()));
  for (const ServerRecord& s : report.served.servers) {
    put(out, s.server);
    for (const std::int64_t n : {s.elements, s.state_bytes, s.most_ahead}) put(out, n);
    put(out, s.checkpoints);
    put(out, s.events);
    put(out, s.steps_ps);
    put(out, s.values);
  }
  return out;
}

Report unpack(std::string_view bytes) {
  ByteReader in(bytes);
  Report report;
  std::uint64_t ranks = 0;
  in.get(report.peak_rss_bytes);
  in.get(ranks);
  for (std::uint64_t i = 0; i < ranks; ++i) {
    RankReport& r = report.ranks.emplace_back();
    in.get(r.rank);
    in.get(r.shares);
    in.get(r.records);
    in.get(r.parameters);
    in.get(r.loss_scale);
    in.get(r.arena_bytes);
    in.get(r.transfer_starts);
    in.get(r.transfer_waits);
    in.get(r.device);
    in.get(r.products);
    in.get(r.checkpoints);
    in.get(r.first_weights_s);
    in.get(r.routing);
  }
  std::uint64_t workers = 0, servers = 0;
  in.get(workers);
  for (std::uint64_t i = 0; i < workers; ++i) {
    WorkerRecord& w = report.served.workers.emplace_back();
    in.get(w.worker), in.get(w.ends);
  }
  in.get(servers);
  for (std::uint64_t i = 0; i < servers; ++i) {
    ServerRecord& s = report.served.servers.emplace_back();
    in.get(s.server);
    for (std::int64_t* n : {&s.elements, &s.state_bytes, &s.most_ahead}) in.get(*n);
    in.get(s.checkpoints);
    in.get(s.events);
    in.get(s.steps_ps);
    in.get(s.values);
  }
  REHEARSE_CHECK(in.done(), "a report goes on after its end");
  return report;
}

}  // namespace rehearse::execute
