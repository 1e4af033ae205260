// The parts of result.json that not every result has, back into a Result; see answers.cpp.
#include <cmath>

#include "sim/result/json_reader.h"

namespace rehearse::result {
namespace {

// The objects of a list; others are reported and left out.
template <class Function>
void for_objects(JsonReader& in, const Json& parent, const std::string& path, std::string_view key,
                 Function&& function) {
  const Json& list = in.array(parent, path, key);
  const std::string name = path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].is_object())
      function(list[i], fmt::format("{}[{}]", name, i));
    else
      in.fail(name, fmt::format("expected objects, found {}", list[i].type_name()));
  }
}

void read_links(JsonReader& in, const Json& document, Result& r) {
  r.links.known = true;
  const Json& links = in.object(document, "", "links");
  r.links.used = in.integer(links, "links", "used");
  r.links.bytes = in.integer(links, "links", "bytes");
  for_objects(in, links, "links", "busiest", [&](const Json& item, const std::string& path) {
    LinkUse link;
    link.name = in.text(item, path, "name"), link.kind = in.text(item, path, "kind");
    link.alike = in.integer(item, path, "alike");
    link.capacity = in.integer(item, path, "capacity_bytes_per_s"), link.bytes = in.integer(item, path, "bytes");
    link.busy_ps = in.picoseconds(item, path, "busy_s");
    link.first_ps = in.picoseconds(item, path, "first_s"), link.last_ps = in.picoseconds(item, path, "last_s");
    const Json& window = in.object(item, path, "busiest_window");
    const std::string of_window = path + ".busiest_window";
    link.window_from_ps = in.picoseconds(window, of_window, "from_s");
    link.window_ps = in.picoseconds(window, of_window, "to_s") - link.window_from_ps;
    link.window_bytes = in.integer(window, of_window, "bytes");
    for_objects(in, item, path, "users", [&](const Json& user, const std::string& of_user) {
      link.users.push_back({in.text(user, of_user, "name"), in.integer(user, of_user, "bytes")});
    });
    r.links.busiest.push_back(std::move(link));
  });
}

void read_collectives(JsonReader& in, const Json& document, Result& r) {
  for_objects(in, document, "", "collectives", [&](const Json& item, const std::string& path) {
    CollectiveUse c;
    c.kind = in.text(item, path, "kind"), c.group = in.text(item, path, "group");
    c.ranks = in.integer(item, path, "ranks"), c.nodes = in.integer(item, path, "nodes");
    c.bytes = in.integer(item, path, "bytes");
    c.algorithm = in.text(item, path, "algorithm"), c.protocol = in.text(item, path, "protocol");
    c.pinned = in.boolean(item, path, "pinned");
    if (item.contains("path")) c.path = in.text(item, path, "path");
    c.channels = in.integer(item, path, "channels"), c.fidelity = in.text(item, path, "fidelity");
    c.count = in.integer(item, path, "count");
    const bool performed = c.fidelity == "performed";
    if (!performed || item.contains("mean_s")) c.mean_ps = in.picoseconds(item, path, "mean_s");
    if (performed) {
      r.collectives.push_back(std::move(c));
      return;
    }
    c.alone_ps = in.picoseconds(item, path, "alone_s");
    c.coverage = in.text(item, path, "coverage");
    const Json& interval = in.array(item, path, "interval");
    if (interval.size() == 2 && interval[0].is_number() && interval[1].is_number())
      c.low = interval[0].get<double>(), c.high = interval[1].get<double>();
    else
      in.fail(path + ".interval", "expected two numbers");
    r.collectives.push_back(std::move(c));
  });
}

Quantiles read_quantiles(JsonReader& in, const Json& item, const std::string& path) {
  return {in.picoseconds(item, path, "p5"), in.picoseconds(item, path, "p50"), in.picoseconds(item, path, "p95")};
}

std::vector<double> read_numbers(JsonReader& in, const Json& object, const std::string& path, const char* key) {
  std::vector<double> numbers;
  for (const Json& item : in.array(object, path, key)) {
    if (item.is_number() && std::abs(item.get<double>()) < 1e15)
      numbers.push_back(item.get<double>());
    else
      in.fail(path + "." + key, fmt::format("expected numbers of usual size, found {}", item.dump()));
  }
  return numbers;
}

void read_samples(JsonReader& in, const Json& document, Result& r) {
  const Json& samples = in.object(document, "", "samples");
  r.samples.count = in.integer(samples, "samples", "count");
  r.samples.reported = in.integer(samples, "samples", "reported");
  const Json& step = in.object(samples, "samples", "step_time_s");
  r.samples.step_ps = read_quantiles(in, step, "samples.step_time_s");
  r.samples.least_ps = in.picoseconds(step, "samples.step_time_s", "min");
  r.samples.most_ps = in.picoseconds(step, "samples.step_time_s", "max");
  r.samples.mean_ps = in.picoseconds(step, "samples.step_time_s", "mean");
  const Json& breakdown = in.object(samples, "samples", "breakdown_s");
  for (std::size_t i = 0; i < kShares; ++i) {
    if (may_be_absent(static_cast<Share>(i)) && !breakdown.contains(kShareNames[i])) continue;
    const Json& share = in.object(breakdown, "samples.breakdown_s", kShareNames[i]);
    r.samples.breakdown_ps[i] = read_quantiles(in, share, fmt::format("samples.breakdown_s.{}", kShareNames[i]));
  }
  if (!samples.contains("step_times_s")) return;  // of a version before
  for (const double seconds : read_numbers(in, samples, "samples", "step_times_s"))
    r.samples.of_samples_ps.push_back(std::llround(seconds * 1e12));
}

void read_noise(JsonReader& in, const Json& document, Result& r) {
  const Json& noise = in.object(document, "", "noise");
  r.noise.known = true;
  r.noise.seed = in.integer(noise, "noise", "seed");
  r.noise.sample = in.integer(noise, "noise", "sample");
  r.noise.without_ps = in.picoseconds(noise, "noise", "step_time_without_s");
  for_objects(in, noise, "noise", "causes", [&](const Json& item, const std::string& path) {
    NoiseCause cause;
    cause.what = in.text(item, path, "what");
    if (cause.what == "slow_rank")
      cause.rank = in.integer(item, path, "rank"), cause.factor = in.number(item, path, "factor");
    if (cause.what == "links") cause.resources = in.text(item, path, "resources");
    if (cause.what == "links" || cause.what == "slow_ranks") cause.count = in.integer(item, path, "count");
    cause.without_ps = in.picoseconds(item, path, "step_time_without_s");
    r.noise.causes.push_back(std::move(cause));
  });
}

void read_jobs(JsonReader& in, const Json& document, Result& r) {
  for_objects(in, document, "", "jobs", [&](const Json& item, const std::string& path) {
    JobResult job;
    job.name = in.text(item, path, "name");
    job.gpus = in.integer(item, path, "gpus"), job.steps = in.integer(item, path, "steps");
    job.start_ps = in.picoseconds(item, path, "start_s");
    job.step_ps = in.picoseconds(item, path, "step_time_s");
    job.least_ps = in.picoseconds(item, path, "step_time_min_s");
    job.most_ps = in.picoseconds(item, path, "step_time_max_s");
    job.alone_ps = in.picoseconds(item, path, "step_time_alone_s");
    job.slowdown = in.number(item, path, "slowdown");
    job.peak_bytes = in.integer(item, path, "memory_peak_bytes");
    job.memory_capacity = in.integer(item, path, "memory_capacity_bytes");
    r.jobs.push_back(std::move(job));
  });
}

void read_energy(JsonReader& in, const Json& document, Result& r) {
  const Json& energy = in.object(document, "", "energy");
  const Json& parts = in.object(energy, "energy", "parts_j");
  Energy& e = r.energy;
  e.known = true;
  e.idle_j = in.number(parts, "energy.parts_j", "idle"), e.products_j = in.number(parts, "energy.parts_j", "products");
  e.memory_j = in.number(parts, "energy.parts_j", "memory"), e.ports_j = in.number(parts, "energy.parts_j", "ports");
  e.limit_w = in.number(energy, "energy", "limit_w"), e.clock = in.number(energy, "energy", "clock");
  e.zeros_j = in.number(energy, "energy", "operands_zero_joules_per_step");
  const Json& interval = in.array(energy, "energy", "interval_j");
  if (interval.size() == 2 && interval[0].is_number() && interval[1].is_number())
    e.low_j = interval[0].get<double>(), e.high_j = interval[1].get<double>();
  else
    in.fail("energy.interval_j", "expected two numbers");
}

void read_pace(JsonReader& in, const Json& document, Result& r) {
  const Json& pace = in.object(document, "", "pace");
  r.pace.probes = static_cast<int>(in.integer(pace, "pace", "probes"));
  r.pace.product_s = in.number(pace, "pace", "product_s");
  r.pace.copy_s = in.number(pace, "pace", "copy_s");
  r.pace.spread = in.number(pace, "pace", "spread");
  r.pace.taken = in.number(pace, "pace", "taken");
  r.pace.stolen = in.number(pace, "pace", "stolen");
  r.pace.waited = in.number(pace, "pace", "waited");
  r.pace.cores = static_cast<int>(in.integer(pace, "pace", "cores"));
  r.pace.wanted = in.number(pace, "pace", "wanted");
}

void read_gpu(JsonReader& in, const Json& document, Result& r) {
  const Json& gpu = in.object(document, "", "gpu");
  GpuRun& g = r.gpu;
  g.samples = in.integer(gpu, "gpu", "samples");
  g.sm_mhz = in.integer(gpu, "gpu", "sm_mhz"), g.least_sm_mhz = in.integer(gpu, "gpu", "sm_mhz_min");
  g.max_sm_mhz = in.integer(gpu, "gpu", "sm_mhz_max"), g.memory_mhz = in.integer(gpu, "gpu", "memory_mhz");
  g.power_w = in.number(gpu, "gpu", "power_w"), g.power_limit_w = in.number(gpu, "gpu", "power_limit_w");
  g.temperature_c = in.integer(gpu, "gpu", "temperature_c"), g.throttle = in.text(gpu, "gpu", "throttle");
  for_objects(in, gpu, "gpu", "products", [&](const Json& item, const std::string& path) {
    g.products.push_back({in.text(item, path, "form"), in.integer(item, path, "m"), in.integer(item, path, "n"),
                          in.integer(item, path, "k"), in.text(item, path, "algorithm")});
  });
}

void read_experts(JsonReader& in, const Json& document, Result& r) {
  const Json& experts = in.object(document, "", "experts");
  r.experts.known = true;
  r.experts.imbalance = in.number(experts, "experts", "imbalance");
  r.experts.mean_imbalance = in.number(experts, "experts", "mean_imbalance");
  r.experts.worst_layer = in.integer(experts, "experts", "worst_layer");
  r.experts.dropped = in.number(experts, "experts", "dropped");
}

// A count, at least `least`.
std::int64_t read_count(JsonReader& in, const Json& item, const std::string& path, std::string_view key,
                        std::int64_t least) {
  const std::int64_t value = in.integer(item, path, key);
  if (value < least)
    in.fail(fmt::format("{}.{}", path, key), fmt::format("expected at least {}, found {}", least, value));
  return value;
}

void read_input(JsonReader& in, const Json& document, Result& r) {
  const Json& input = in.object(document, "", "input");
  r.input.known = true;
  r.input.workers = in.integer(input, "input", "workers"), r.input.ahead = in.integer(input, "input", "ahead");
  r.input.micro_batch_ps = in.picoseconds(input, "input", "micro_batch_s");
  r.input.step_ps = in.picoseconds(input, "input", "step_at_least_s");
  r.input.bound = in.text(input, "input", "bound");
}

void read_epoch(JsonReader& in, const Json& document, Result& r) {
  const Json& epoch = in.object(document, "", "epoch");
  r.epoch.samples = read_count(in, epoch, "epoch", "samples", 1);
  r.epoch.drop_last = in.boolean(epoch, "epoch", "drop_last");
  r.epoch.padded_steps = read_count(in, epoch, "epoch", "steps_padded", 0);
  r.epoch.dropping_steps = read_count(in, epoch, "epoch", "steps_dropping", 0);
  if (epoch.contains("epochs")) r.epoch.epochs = read_count(in, epoch, "epoch", "epochs", 1);
}

void read_learning_rate(JsonReader& in, const Json& document, Result& r) {
  const Json& rate = in.object(document, "", "learning_rate");
  r.learning_rate.base_batch = read_count(in, rate, "learning_rate", "base_batch", 1);
  r.learning_rate.global_batch = read_count(in, rate, "learning_rate", "global_batch", 1);
  if (rate.contains("base_lr")) r.learning_rate.base_lr = in.number(rate, "learning_rate", "base_lr");
}

void read_local_steps(JsonReader& in, const Json& document, Result& r) {
  const Json& local = in.object(document, "", "local_steps");
  LocalSteps& l = r.local_steps;
  l.known = true;
  l.steps = read_count(in, local, "local_steps", "steps", 1);
  l.workers = read_count(in, local, "local_steps", "workers", 1);
  l.outer = in.text(local, "local_steps", "outer_optimizer");
  l.round_ps = in.picoseconds(local, "local_steps", "round_time_s");
  l.inner_ps = in.picoseconds(local, "local_steps", "inner_step_time_s");
  l.outer_ps = in.picoseconds(local, "local_steps", "outer_step_time_s");
}

void read_first_weights(JsonReader& in, const Json& document, Result& r) {
  const std::string path = "first_weights";
  const Json& from = in.object(document, "", path);
  FirstWeights& f = r.first_weights;
  f.known = true;
  f.time_ps = in.picoseconds(from, path, "time_s");
  f.bytes = read_count(in, from, path, "bytes", 1);
  f.messages = read_count(in, from, path, "messages", 1);
  if (from.contains("link_bytes")) f.link_bytes = read_count(in, from, path, "link_bytes", 0);
  for (const Json& way : in.array(from, path, "ways")) {
    if (way.is_string())
      f.ways.push_back(way.get<std::string>());
    else
      in.fail(path + ".ways", fmt::format("expected texts, found {}", way.dump()));
  }
}

void read_target(JsonReader& in, const Json& document, Result& r) {
  const std::string path = "time_to_loss";
  const Json& from = in.object(document, "", path);
  r.target = {true, in.number(from, path, "loss"), read_count(in, from, path, "mean_over_steps", 1)};
  if (!in.boolean(from, path, "reached")) return;
  r.target.step = read_count(in, from, path, "step", 1), r.target.ps = in.picoseconds(from, path, "time_s");
}

void read_servers(JsonReader& in, const Json& document, Result& r) {
  const std::string path = "parameter_servers";
  const Json& from = in.object(document, "", path);
  ParameterServers& p = r.servers;
  p.known = true;
  p.servers = read_count(in, from, path, "servers", 1);
  p.workers = read_count(in, from, path, "workers", 1);
  if (from.contains("own_devices")) p.own_devices = read_count(in, from, path, "own_devices", 1);
  p.consistency = in.text(from, path, "consistency");
  if (from.contains("staleness_bound")) p.bound = read_count(in, from, path, "staleness_bound", 0);
  p.backup_workers = read_count(in, from, path, "backup_workers", 0);
  p.window_ps = in.picoseconds(from, path, "window_s");
  p.updates = read_count(in, from, path, "updates", 0);
  p.dropped = read_count(in, from, path, "dropped", 0);
  p.updates_per_s = in.number(from, path, "updates_per_s");
  p.samples_per_s = in.number(from, path, "samples_per_s");
  for (const double count : read_numbers(in, from, path, "staleness")) {
    if (count < 0 || count > 1e15 || count != std::floor(count))
      in.fail(path + ".staleness", fmt::format("expected counts of updates, found {}", count));
    p.staleness.push_back(std::llround(count));
  }
  p.mean_staleness = in.number(from, path, "mean_staleness");
  p.most_ahead = read_count(in, from, path, "most_ahead", 0);
  p.iterations_per_s = read_numbers(in, from, path, "worker_iterations_per_s");
  p.parameter_bytes = read_count(in, from, path, "parameter_bytes", 0);
  p.gradient_bytes = read_count(in, from, path, "gradient_bytes", 0);
  p.fullest_server_bytes = read_count(in, from, path, "fullest_server_bytes", 0);
  p.server_memory_bytes = read_count(in, from, path, "server_memory_bytes", 0);
  p.bound_by = in.text(from, path, "bound_by");
  p.busy = in.number(from, path, "busy");
}

void read_reinforcement(JsonReader& in, const Json& document, Result& r) {
  const std::string path = "reinforcement";
  const Json& from = in.object(document, "", path);
  Reinforcement& f = r.reinforcement;
  f.known = true;
  f.algorithm = in.text(from, path, "algorithm");
  f.colocated = in.boolean(from, path, "colocated"), f.asynchronous = in.boolean(from, path, "asynchronous");
  f.prompts = read_count(in, from, path, "prompts", 1), f.samples = read_count(in, from, path, "samples", 1);
  f.updates = read_count(in, from, path, "updates", 1), f.update_ps = in.picoseconds(from, path, "update_s");
  f.prompt_tokens = in.number(from, path, "prompt_tokens");
  f.response_tokens = in.number(from, path, "response_tokens");
  f.longest_response = read_count(in, from, path, "longest_response", 0);
  f.training_gpus = read_count(in, from, path, "training_gpus", 1);
  f.generating_gpus = read_count(in, from, path, "generating_gpus", 1);
  for_objects(in, from, path, "phases", [&](const Json& item, const std::string& at) {
    f.phases.push_back({in.text(item, at, "name"), in.text(item, at, "devices"), in.picoseconds(item, at, "time_s"),
                        item.contains("idle") ? in.number(item, at, "idle") : 0,
                        read_count(in, item, at, "peak_bytes", 0)});
  });
  if (from.contains("idle")) f.idle = in.number(from, path, "idle");
  const std::string inner = path + ".generation";
  const Json& g = in.object(from, path, "generation");
  f.replicas = read_count(in, g, inner, "replicas", 1);
  f.prefill_ps = in.picoseconds(g, inner, "prefill_s"), f.decode_ps = in.picoseconds(g, inner, "decode_s");
  f.decode_steps = read_count(in, g, inner, "decode_steps", 0);
  f.sequences_at_once = read_count(in, g, inner, "sequences_at_once", 0);
  f.generated_tokens_per_s = in.number(g, inner, "tokens_per_s");
  f.cache_bytes = read_count(in, g, inner, "cache_bytes", 0);
  f.cache_bytes_per_token = read_count(in, g, inner, "cache_bytes_per_token", 0);
  f.most_cached_bytes = read_count(in, g, inner, "most_cached_bytes", 0);
  f.moved_bytes = read_count(in, from, path, "moved_bytes", 0);
  if (from.contains("rewards")) f.rewards = read_numbers(in, from, path, "rewards");
  if (from.contains("distances")) f.distances = read_numbers(in, from, path, "distances");
}

}  // namespace

void read_answers(JsonReader& in, const Json& document, Result& r) {
  if (document.contains("ideal"))
    r.ideal_step_ps = in.picoseconds(in.object(document, "", "ideal"), "ideal", "step_time_s");
  if (document.contains("links")) read_links(in, document, r);
  if (document.contains("collectives")) read_collectives(in, document, r);
  if (document.contains("samples")) read_samples(in, document, r);
  if (document.contains("noise")) read_noise(in, document, r);
  if (document.contains("energy")) read_energy(in, document, r);
  if (document.contains("jobs")) read_jobs(in, document, r);
  if (document.contains("experts")) read_experts(in, document, r);
  if (document.contains("input")) read_input(in, document, r);
  if (document.contains("epoch")) read_epoch(in, document, r);
  if (document.contains("learning_rate")) read_learning_rate(in, document, r);
  if (document.contains("notes"))
    for_objects(in, document, "", "notes", [&](const Json& item, const std::string& path) {
      r.notes.push_back({in.text(item, path, "what"), in.text(item, path, "text")});
    });
  if (document.contains("pace")) read_pace(in, document, r);
  if (document.contains("gpu")) read_gpu(in, document, r);
  if (document.contains("local_steps")) read_local_steps(in, document, r);
  if (document.contains("first_weights")) read_first_weights(in, document, r);
  if (document.contains("parameter_servers")) read_servers(in, document, r);
  if (document.contains("time_to_loss")) read_target(in, document, r);
  if (document.contains("reinforcement")) read_reinforcement(in, document, r);
  if (document.contains("what_if"))
    for_objects(in, document, "", "what_if", [&](const Json& item, const std::string& path) {
      r.what_if.push_back({in.text(item, path, "what"), in.picoseconds(item, path, "halved_step_time_s"),
                           in.picoseconds(item, path, "doubled_step_time_s"),
                           item.contains("why") ? in.text(item, path, "why") : ""});
    });
}

}  // namespace rehearse::result
