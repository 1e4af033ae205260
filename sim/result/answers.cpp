// The parts of result.json that not every result has: the ideal step, the busiest links, statistics over samples, what
// noise costs, what-ifs, other jobs, and notes.
#include <cmath>

#include "sim/result/json_writer.h"
#include "sim/result/records.h"

namespace rehearse::result {
namespace {

// How much longer (positive) a step of `ps` is than one of `than`.
double change(std::int64_t ps, std::int64_t than) {
  return than > 0 ? static_cast<double>(ps - than) / static_cast<double>(than) : 0;
}

void write_links(const Result& r, JsonWriter& json) {
  json.key("links").open('{').key("used").integer(r.links.used).key("bytes").integer(r.links.bytes);
  json.key("busiest").open('[');
  for (const LinkUse& link : r.links.busiest) {
    json.open('{').key("name").text(link.name).key("kind").text(link.kind).key("alike").integer(link.alike);
    json.key("capacity_bytes_per_s").integer(link.capacity).key("bytes").integer(link.bytes);
    json.key("utilisation").real(utilisation(link, link.bytes, r.step_time_ps));
    json.key("busy_s").seconds(link.busy_ps).key("first_s").seconds(link.first_ps).key("last_s").seconds(link.last_ps);
    json.key("busiest_window").open('{').key("from_s").seconds(link.window_from_ps);
    json.key("to_s").seconds(link.window_from_ps + link.window_ps).key("bytes").integer(link.window_bytes);
    json.key("utilisation").real(utilisation(link, link.window_bytes, link.window_ps)).close('}');
    json.key("users").open('[');
    for (const LinkUser& user : link.users)
      json.open('{').key("name").text(user.name).key("bytes").integer(user.bytes).close('}');
    json.close(']').close('}');
  }
  json.close(']').close('}');
}

void write_collectives(const Result& r, JsonWriter& json) {
  json.key("collectives").open('[');
  for (const CollectiveUse& c : r.collectives) {
    json.open('{').key("kind").text(c.kind).key("group").text(c.group).key("ranks").integer(c.ranks);
    json.key("nodes").integer(c.nodes).key("bytes").integer(c.bytes);
    json.key("algorithm").text(c.algorithm).key("protocol").text(c.protocol).key("pinned").boolean(c.pinned);
    if (!c.path.empty()) json.key("path").text(c.path);
    json.key("channels").integer(c.channels).key("fidelity").text(c.fidelity);
    json.key("count").integer(c.count);
    const bool performed = c.fidelity == "performed";
    if (!performed) json.key("alone_s").seconds(c.alone_ps);
    if (!performed || c.mean_ps > 0) json.key("mean_s").seconds(c.mean_ps);
    if (!performed) {
      json.key("coverage").text(c.coverage);
      json.key("interval").open('[').real(c.low).real(c.high).close(']');
    }
    json.close('}');
  }
  json.close(']');
}

void write_quantiles(const Quantiles& q, JsonWriter& json) {
  json.key("p5").seconds(q.p5).key("p50").seconds(q.p50).key("p95").seconds(q.p95);
}

void write_samples(const Result& r, JsonWriter& json) {
  const Samples& s = r.samples;
  json.key("samples").open('{').key("count").integer(s.count).key("reported").integer(s.reported);
  json.key("step_time_s").open('{');
  write_quantiles(s.step_ps, json);
  json.key("min").seconds(s.least_ps).key("max").seconds(s.most_ps).key("mean").seconds(s.mean_ps).close('}');
  json.key("breakdown_s").open('{');
  for (std::size_t i = 0; i < kShares; ++i) {
    if (!has_share(r, static_cast<Share>(i))) continue;
    json.key(kShareNames[i]).open('{');
    write_quantiles(s.breakdown_ps[i], json);
    json.close('}');
  }
  json.close('}').key("step_times_s").open('[');
  for (const std::int64_t step : s.of_samples_ps) json.seconds(step);
  json.close(']').close('}');
}

void write_noise(const Result& r, JsonWriter& json) {
  json.key("noise").open('{').key("seed").integer(r.noise.seed).key("sample").integer(r.noise.sample);
  json.key("step_time_without_s").seconds(r.noise.without_ps);
  json.key("causes").open('[');
  for (const NoiseCause& cause : r.noise.causes) {
    json.open('{').key("what").text(cause.what);
    if (cause.what == "slow_rank") json.key("rank").integer(cause.rank).key("factor").real(cause.factor);
    if (cause.what == "links") json.key("resources").text(cause.resources);
    if (cause.what == "links" || cause.what == "slow_ranks") json.key("count").integer(cause.count);
    json.key("step_time_without_s").seconds(cause.without_ps);
    json.key("cost_s").seconds(r.step_time_ps - cause.without_ps);
    json.key("cost").real(change(r.step_time_ps, cause.without_ps)).close('}');
  }
  json.close(']').close('}');
}

void write_what_if(const Result& r, JsonWriter& json) {
  json.key("what_if").open('[');
  for (const WhatIf& w : r.what_if) {
    json.open('{').key("what").text(w.what);
    json.key("halved_step_time_s").seconds(w.halved_ps).key("halved").real(change(w.halved_ps, r.step_time_ps));
    json.key("doubled_step_time_s").seconds(w.doubled_ps).key("doubled").real(change(w.doubled_ps, r.step_time_ps));
    if (!w.why.empty()) json.key("why").text(w.why);
    json.close('}');
  }
  json.close(']');
}

void write_jobs(const Result& r, JsonWriter& json) {
  json.key("jobs").open('[');
  for (const JobResult& job : r.jobs) {
    json.open('{').key("name").text(job.name).key("gpus").integer(job.gpus).key("start_s").seconds(job.start_ps);
    json.key("steps").integer(job.steps).key("step_time_s").seconds(job.step_ps);
    json.key("step_time_min_s").seconds(job.least_ps).key("step_time_max_s").seconds(job.most_ps);
    json.key("step_time_alone_s").seconds(job.alone_ps).key("slowdown").real(job.slowdown);
    json.key("memory_peak_bytes").integer(job.peak_bytes).key("memory_capacity_bytes").integer(job.memory_capacity);
    json.close('}');
  }
  json.close(']');
}

void write_energy(const Result& r, JsonWriter& json) {
  const Energy& e = r.energy;
  json.key("energy").open('{').key("joules_per_step").real(e.joules());
  json.key("interval_j").open('[').real(e.low_j).real(e.high_j).close(']');
  json.key("watts_per_gpu").real(watts_per_gpu(e, r.step_time_ps, r.ranks)).key("limit_w").real(e.limit_w);
  json.key("clock").real(e.clock);
  json.key("kwh_per_step").real(e.joules() / kJoulesPerKwh).key("kwh_per_billion_tokens").real(kwh(r, 1e9));
  json.key("parts_j").open('{').key("idle").real(e.idle_j).key("products").real(e.products_j);
  json.key("memory").real(e.memory_j).key("ports").real(e.ports_j).close('}');
  json.key("operands_zero_joules_per_step").real(e.zeros_j).close('}');
}

void write_pace(const Pace& p, JsonWriter& json) {
  json.key("pace").open('{').key("probes").integer(p.probes).key("product_s").real(p.product_s);
  json.key("copy_s").real(p.copy_s).key("spread").real(p.spread).key("taken").real(p.taken);
  json.key("stolen")
      .real(p.stolen)
      .key("waited")
      .real(p.waited)
      .key("cores")
      .integer(p.cores)
      .key("wanted")
      .real(p.wanted)
      .close('}');
}

void write_gpu(const GpuRun& g, JsonWriter& json) {
  json.key("gpu").open('{').key("samples").integer(g.samples);
  json.key("sm_mhz")
      .integer(g.sm_mhz)
      .key("sm_mhz_min")
      .integer(g.least_sm_mhz)
      .key("sm_mhz_max")
      .integer(g.max_sm_mhz);
  json.key("memory_mhz")
      .integer(g.memory_mhz)
      .key("power_w")
      .real(g.power_w)
      .key("power_limit_w")
      .real(g.power_limit_w);
  json.key("temperature_c").integer(g.temperature_c).key("throttle").text(g.throttle);
  json.key("products").open('[');
  for (const ProductUse& p : g.products) {
    json.open('{').key("form").text(p.form).key("m").integer(p.m).key("n").integer(p.n).key("k").integer(p.k);
    json.key("algorithm").text(p.algorithm).close('}');
  }
  json.close(']').close('}');
}

void write_notes(const Result& r, JsonWriter& json) {
  json.key("notes").open('[');
  for (const Note& note : r.notes) json.open('{').key("what").text(note.what).key("text").text(note.text).close('}');
  json.close(']');
}

void write_experts(const ExpertBalance& e, JsonWriter& json) {
  json.key("experts").open('{').key("imbalance").real(e.imbalance).key("mean_imbalance").real(e.mean_imbalance);
  json.key("worst_layer").integer(e.worst_layer).key("dropped").real(e.dropped).close('}');
}

void write_input(const Input& i, JsonWriter& json) {
  json.key("input").open('{').key("workers").integer(i.workers).key("ahead").integer(i.ahead);
  json.key("micro_batch_s").seconds(i.micro_batch_ps).key("step_at_least_s").seconds(i.step_ps);
  json.key("bound").text(i.bound).close('}');
}

void write_epoch(const Result& r, JsonWriter& json) {
  const Epoch& e = r.epoch;
  const double step_s = static_cast<double>(r.step_time_ps) * 1e-12;
  json.key("epoch").open('{').key("samples").integer(e.samples).key("drop_last").boolean(e.drop_last);
  json.key("steps").integer(e.steps()).key("steps_padded").integer(e.padded_steps);
  json.key("steps_dropping").integer(e.dropping_steps);
  json.key("time_s").real(step_s * static_cast<double>(e.steps()));
  if (e.epochs > 0) {
    json.key("epochs").integer(e.epochs);
    json.key("all_epochs_s").real(step_s * static_cast<double>(e.steps()) * static_cast<double>(e.epochs));
  }
  json.close('}');
}

void write_learning_rate(const LearningRate& l, JsonWriter& json) {
  const double k = static_cast<double>(l.global_batch) / static_cast<double>(l.base_batch);
  json.key("learning_rate").open('{').key("base_batch").integer(l.base_batch);
  json.key("global_batch").integer(l.global_batch).key("linear_factor").real(k);
  json.key("square_root_factor").real(std::sqrt(k));
  if (l.base_lr > 0) {
    json.key("base_lr").real(l.base_lr).key("linear_lr").real(l.base_lr * k);
    json.key("square_root_lr").real(l.base_lr * std::sqrt(k));
  }
  json.close('}');
}

void write_local_steps(const LocalSteps& l, JsonWriter& json) {
  json.key("local_steps").open('{').key("steps").integer(l.steps).key("workers").integer(l.workers);
  json.key("outer_optimizer").text(l.outer).key("round_time_s").seconds(l.round_ps);
  json.key("inner_step_time_s").seconds(l.inner_ps).key("outer_step_time_s").seconds(l.outer_ps).close('}');
}

void write_first_weights(const FirstWeights& f, JsonWriter& json) {
  json.key("first_weights").open('{').key("time_s").seconds(f.time_ps).key("bytes").integer(f.bytes);
  json.key("messages").integer(f.messages);
  if (f.link_bytes > 0) json.key("link_bytes").integer(f.link_bytes);
  json.key("ways").open('[');
  for (const std::string& way : f.ways) json.text(way);
  json.close(']').close('}');
}

void write_target(const LossTarget& t, JsonWriter& json) {
  json.key("time_to_loss").open('{').key("loss").real(t.loss).key("mean_over_steps").integer(t.window);
  json.key("reached").boolean(t.step >= 0);
  if (t.step >= 0) json.key("step").integer(t.step).key("time_s").seconds(t.ps);
  json.close('}');
}

void write_servers(const ParameterServers& p, JsonWriter& json) {
  json.key("parameter_servers").open('{').key("servers").integer(p.servers).key("workers").integer(p.workers);
  if (p.own_devices > 0) json.key("own_devices").integer(p.own_devices);
  json.key("consistency").text(p.consistency);
  if (p.bound >= 0) json.key("staleness_bound").integer(p.bound);
  json.key("backup_workers").integer(p.backup_workers).key("window_s").seconds(p.window_ps);
  json.key("updates").integer(p.updates).key("dropped").integer(p.dropped);
  json.key("updates_per_s").real(p.updates_per_s).key("samples_per_s").real(p.samples_per_s);
  json.key("staleness").open('[');
  for (const std::int64_t count : p.staleness) json.integer(count);
  json.close(']').key("mean_staleness").real(p.mean_staleness).key("most_ahead").integer(p.most_ahead);
  json.key("worker_iterations_per_s").open('[');
  for (const double rate : p.iterations_per_s) json.real(rate);
  json.close(']').key("parameter_bytes").integer(p.parameter_bytes).key("gradient_bytes").integer(p.gradient_bytes);
  json.key("fullest_server_bytes").integer(p.fullest_server_bytes);
  json.key("server_memory_bytes").integer(p.server_memory_bytes);
  json.key("bound_by").text(p.bound_by).key("busy").real(p.busy).close('}');
}

// Which devices idle is not measured.
void write_reinforcement(const Reinforcement& f, bool idle, JsonWriter& json) {
  json.key("reinforcement").open('{').key("algorithm").text(f.algorithm).key("colocated").boolean(f.colocated);
  json.key("asynchronous").boolean(f.asynchronous).key("prompts").integer(f.prompts).key("samples").integer(f.samples);
  json.key("updates").integer(f.updates).key("update_s").seconds(f.update_ps);
  json.key("prompt_tokens").real(f.prompt_tokens).key("response_tokens").real(f.response_tokens);
  json.key("longest_response").integer(f.longest_response);
  json.key("training_gpus").integer(f.training_gpus).key("generating_gpus").integer(f.generating_gpus);
  json.key("phases").open('[');
  for (const ReinforcementPhase& p : f.phases) {
    json.open('{').key("name").text(p.name).key("devices").text(p.devices).key("time_s").seconds(p.ps);
    if (idle) json.key("idle").real(p.idle);
    json.key("peak_bytes").integer(p.peak_bytes).close('}');
  }
  json.close(']');
  if (idle) json.key("idle").real(f.idle);
  json.key("generation").open('{').key("replicas").integer(f.replicas);
  json.key("prefill_s").seconds(f.prefill_ps).key("decode_s").seconds(f.decode_ps);
  json.key("decode_steps").integer(f.decode_steps).key("sequences_at_once").integer(f.sequences_at_once);
  json.key("tokens_per_s").real(f.generated_tokens_per_s).key("cache_bytes").integer(f.cache_bytes);
  json.key("cache_bytes_per_token").integer(f.cache_bytes_per_token);
  json.key("most_cached_bytes").integer(f.most_cached_bytes).close('}');
  json.key("moved_bytes").integer(f.moved_bytes);
  const auto write = [&json](const char* key, const std::vector<double>& numbers) {
    if (numbers.empty()) return;
    json.key(key).open('[');
    for (const double number : numbers) json.real(number);
    json.close(']');
  };
  write("rewards", f.rewards), write("distances", f.distances);
  json.close('}');
}

}  // namespace

double utilisation(const LinkUse& link, std::int64_t bytes, std::int64_t ps) {
  const double could = static_cast<double>(link.capacity) * static_cast<double>(ps) * 1e-12;
  return could > 0 ? static_cast<double>(bytes) / could : 0;
}

void write_answers(const Result& r, JsonWriter& json) {
  if (r.ideal_step_ps > 0)
    json.key("ideal")
        .open('{')
        .key("framework")
        .text("rehearse")
        .key("step_time_s")
        .seconds(r.ideal_step_ps)
        .close('}');
  if (r.links.known) write_links(r, json);
  if (!r.collectives.empty()) write_collectives(r, json);
  if (r.samples.count > 0) write_samples(r, json);
  if (r.noise.known) write_noise(r, json);
  if (!r.what_if.empty()) write_what_if(r, json);
  if (r.energy.known) write_energy(r, json);
  if (!r.jobs.empty()) write_jobs(r, json);
  if (r.experts.known) write_experts(r.experts, json);
  if (r.input.known) write_input(r.input, json);
  if (r.epoch.samples > 0) write_epoch(r, json);
  if (r.learning_rate.base_batch > 0) write_learning_rate(r.learning_rate, json);
  if (!r.notes.empty()) write_notes(r, json);
  if (r.pace.known()) write_pace(r.pace, json);
  if (r.gpu.known()) write_gpu(r.gpu, json);
  if (r.local_steps.known) write_local_steps(r.local_steps, json);
  if (r.first_weights.known) write_first_weights(r.first_weights, json);
  if (r.servers.known) write_servers(r.servers, json);
  if (r.target.known) write_target(r.target, json);
  if (r.reinforcement.known) write_reinforcement(r.reinforcement, r.source != "measured", json);
}

}  // namespace rehearse::result
