#include "calibrate/calibration_json.h"

#include <set>
#include <string_view>
#include <tuple>

#include "sim/result/json_writer.h"

namespace rehearse::calibrate {
namespace {

using cost::Calibration;
using result::JsonWriter;

std::string_view dtype_name(program::DType dtype) {
  constexpr std::string_view names[] = {"fp32", "bf16", "fp16", "i32", "u8", "e4m3", "e5m2"};
  return names[static_cast<std::size_t>(dtype)];
}
std::string_view kind_name(const cost::CalibratedTransfer& t) {
  return t.send ? "send" : program::kind_name(program::Collective{t.kind});
}

void write(JsonWriter& w, const cost::Quantiles& q) {
  w.key("p10_s").real(q.p10).key("p50_s").real(q.p50).key("p90_s").real(q.p90);
}

void write(JsonWriter& w, const cost::HostFacts& host) {
  w.key("host").open('{');
  w.key("name").text(host.name).key("cpu").text(host.cpu).key("cores").integer(host.cores);
  w.key("memory_bytes").integer(host.memory_bytes).key("isa").text(host.isa).key("kernel").text(host.kernel);
  w.close('}');
}

void write(JsonWriter& w, const cost::Provenance& made) {
  w.key("made").open('{');
  w.key("date").text(made.date).key("command").text(made.command).key("version").text(made.version);
  w.key("compiler").text(made.compiler).key("eigen").text(made.eigen);
  w.key("budget_s").real(made.budget_s).key("wall_s").real(made.wall_s);
  w.close('}');
}

void write(JsonWriter& w, const cost::CalibratedKernel& k) {
  w.open('{');
  w.key("kind").text(k.kind).key("shape").text(k.shape).key("dtype").text(dtype_name(k.dtype));
  w.key("threads").integer(k.threads).key("busy").integer(k.busy);
  w.key("flops").real(k.flops).key("bytes").real(k.bytes);
  write(w, k.time);
  w.key("mean_s").real(k.mean).key("repetitions").integer(k.repetitions);
  w.key("origin").text(k.origin == cost::Origin::program ? "program" : "grid");
  w.close('}');
}

void write(JsonWriter& w, const cost::CalibratedTransfer& t) {
  w.open('{');
  w.key("transport").text(t.transport == cost::Transport::gloo ? "gloo" : "local").key("kind").text(kind_name(t));
  w.key("ranks").integer(t.ranks).key("bytes").integer(t.bytes);
  write(w, t.time);
  w.key("repetitions").integer(t.repetitions);
  w.close('}');
}

void write_sharing(JsonWriter& w, const Calibration& c) {
  constexpr std::string_view loads[cost::kLoads] = {"gemm", "memory", "transfer"};
  w.key("sharing").open('[');
  for (std::size_t what = 0; what < cost::kLoads; ++what)
    for (std::size_t beside = 0; beside < cost::kLoads; ++beside) {
      w.open('{').key("class").text(loads[what]).key("beside").text(loads[beside]);
      w.key("slowdown").real(c.slowdown[what][beside]).close('}');
    }
  w.close(']');
}

void write(JsonWriter& w, const cost::Delays& d) {
  w.key("rate").real(d.rate).key("mean_s").real(d.mean_s).key("spread").real(d.spread);
}
void write(JsonWriter& w, std::string_view key, const cost::Delays& d) {
  w.key(key).open('{');
  write(w, d);
  w.close('}');
}

void write_jitter(JsonWriter& w, const Calibration& c) {
  const cost::Jitter& j = c.jitter;
  w.key("jitter").open('{').key("kernels").open('{');
  for (std::size_t i = 0; i < j.kernels.size(); ++i) w.key(cost::kKernelClasses[i]).real(j.kernels[i]);
  w.close('}').key("rank_step").real(j.rank_step).key("step").real(j.step);
  w.key("transfers").real(j.transfers).key("waking").real(j.waking);
  w.key("kernel_delays").open('[');
  for (const cost::CompanyDelays& each : c.kernel_delays) {
    w.open('{').key("threads").integer(each.threads).key("busy").integer(each.busy);
    write(w, each.delays);
    w.close('}');
  }
  w.close(']');
  write(w, "transfer_delays", j.transfer_delays);
  write(w, "waking_delays", j.waking_delays);
  write(w, "dispatch_delays", j.dispatch_delays);
  w.close('}');
}

void write(JsonWriter& w, const Pace& p) {
  w.key("pace").open('{').key("probes").integer(p.probes).key("product_s").real(p.product_s);
  w.key("copy_s").real(p.copy_s).key("spread").real(p.spread).key("taken").real(p.taken);
  w.key("stolen").real(p.stolen).key("waited").real(p.waited).key("wanted").real(p.wanted).close('}');
}

auto key_of(const cost::CalibratedKernel& k) {
  return std::tuple(k.kind, k.shape, k.dtype, k.threads, k.busy, k.origin);
}
auto key_of(const cost::CalibratedTransfer& t) {
  return std::tuple(t.transport, t.send, t.kind, t.ranks, t.bytes);
}

template <class Entry>
void keep(const std::vector<Entry>& older, std::vector<Entry>& newer) {
  std::set<decltype(key_of(older.front()))> known;
  for (const Entry& e : newer) known.insert(key_of(e));
  for (const Entry& e : older)
    if (!known.contains(key_of(e))) newer.push_back(e);
}

}  // namespace

std::string to_json(const Calibration& c) {
  JsonWriter w;
  w.open('{');
  w.key("schema").text(cost::kCalibrationSchema).key("name").text(c.name).key("kind").text("cpu");
  write(w, c.host);
  write(w, c.made);
  w.key("peak_flops").real(c.peak_flops).key("memory_bandwidth").real(c.memory_bandwidth);
  w.key("dispatch_s").real(c.dispatch_s).key("wake_s").real(c.wake_s);
  w.key("kernels").open('[');
  for (const auto& kernel : c.kernels) write(w, kernel);
  w.close(']').key("transfers").open('[');
  for (const auto& transfer : c.transfers) write(w, transfer);
  w.close(']');
  write_sharing(w, c);
  write_jitter(w, c);
  if (c.pace.known()) write(w, c.pace);
  w.close('}');
  return w.str() + '\n';
}

Calibration merged(const Calibration& older, Calibration newer) {
  keep(older.kernels, newer.kernels);
  keep(older.transfers, newer.transfers);
  return newer;
}

}  // namespace rehearse::calibrate
