// See parameter_servers.h.
#include "execute/rank/parameter_servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "execute/rank/initial_values.h"
#include "execute/rank/kernel_call.h"
#include "sim/base/check.h"
#include "sim/base/half.h"

namespace rehearse::execute {

using account::ServerAct;
using account::ServerEvent;
using plan::Consistency;

namespace {

std::string act_text(const ServerEvent& e) {
  return fmt::format("the {} of rank {}, iteration {}", e.act == ServerAct::pull ? "pull" : "gradient", e.worker,
                     e.iteration);
}

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

ParameterServers::ParameterServers(Run& run)
    : run_(run),
      plan_(run.scenario.plan),
      timeline_(run.timeline(0)),
      parameters_(account::server_parameters(*timeline_.role, static_cast<int>(plan_.servers))),
      ended_(static_cast<std::size_t>(run.grid.ranks())),
      ends_(ended_.size()) {
  const std::vector<std::int64_t> elements = account::server_elements(parameters_, static_cast<int>(plan_.servers));
  const bool adam = run.scenario.training.optimizer == plan::OptimizerKind::adamw;
  for (const std::int64_t n : elements) {
    Server& server = *servers_.emplace_back(std::make_unique<Server>());
    const auto count = static_cast<std::size_t>(n);
    server.values.resize(count);
    if (adam || run.scenario.training.momentum > 0) server.exp_avg.resize(count);
    if (adam) server.exp_avg_sq.resize(count);
    server.device = kernels::make_cpu_device(1);
  }
  check_order();
  for (std::size_t s = 0; s < servers_.size(); ++s)
    servers_[s]->thread = std::thread([this, s] {
      try {
        serve(s);
      } catch (const Stopped&) {
      } catch (const std::exception& error) {
        run_.world.failures().fail(0, fmt::format("server {} failed: {}", s, error.what()));
      }
    });
}

ParameterServers::~ParameterServers() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  for (const auto& server : servers_) {
    server->changed.notify_all();
    if (server->thread.joinable()) server->thread.join();
  }
}

bool ParameterServers::synchronous() const {
  return plan_.consistency == Consistency::synchronous;
}

// Of a synchronous plan an order says which workers make a step; of others, it is all that each server does.
void ParameterServers::check_order() {
  if (run_.options.server_order == nullptr) return;
  for (const ServerEvent& e : *run_.options.server_order) {
    REHEARSE_CHECK(e.server >= 0 && static_cast<std::size_t>(e.server) < servers_.size() && e.worker >= 0 &&
                       static_cast<std::size_t>(e.worker) < ended_.size() && e.iteration < run_.options.steps,
                   "an order of another plan: server {}, worker {}, iteration {}", e.server, e.worker, e.iteration);
    if (!synchronous())
      servers_[static_cast<std::size_t>(e.server)]->order.push_back(e);
    else if (e.act == ServerAct::apply)
      members_[e.iteration].insert(e.worker);
  }
}

std::int64_t ParameterServers::place_of(program::BufferId id) const {
  const program::Buffer& b = timeline_.role->buffers[static_cast<std::size_t>(id)];
  const program::BufferId base = b.is_view() ? b.base : id;
  const std::int64_t at = timeline_.persistent[static_cast<std::size_t>(base)];
  REHEARSE_CHECK(at >= 0, "'{}' is not kept", b.name);
  return at + (b.is_view() ? b.offset * size_of(b.dtype) : 0);
}

void ParameterServers::begin_with(const RankMemory& memory) {
  for (const account::ServerParameter& p : parameters_) {
    const program::Buffer& b = timeline_.role->buffers[static_cast<std::size_t>(p.value)];
    to_float(b.dtype, memory.at(place_of(p.value)), p.elements,
             servers_[static_cast<std::size_t>(p.server)]->values.data() + p.first);
  }
}

std::int64_t ParameterServers::slowest() const {
  return *std::min_element(ended_.begin(), ended_.end());
}

// Ranks that have not ended so many iterations.
std::vector<int> ParameterServers::behind(std::int64_t iterations) const {
  std::vector<int> ranks;
  for (std::size_t w = 0; w < ended_.size(); ++w)
    if (ended_[w] < iterations) ranks.push_back(static_cast<int>(w));
  return ranks;
}

Clock::time_point ParameterServers::pull(int worker, std::int64_t iteration, const RankMemory& memory) {
  std::vector<std::shared_ptr<Reply>> replies;
  for (std::size_t s = 0; s < servers_.size(); ++s) replies.push_back(std::make_shared<Reply>());
  Clock::time_point admitted;
  {
    std::unique_lock lock(mutex_);
    if (plan_.consistency != Consistency::asynchronous) {
      const std::int64_t needed = synchronous() ? iteration : iteration - plan_.staleness;
      wait_for(
          lock, moved_, run_.world.stop(), run_.options.timeout,
          [&] { return (synchronous() ? decided_.load() : slowest()) >= needed; }, [&] { return behind(needed); });
    }
    most_ahead_ = std::max(most_ahead_, iteration - slowest());
    admitted = Clock::now();
    for (std::size_t s = 0; s < servers_.size(); ++s) {
      Message message;
      message.worker = worker, message.iteration = iteration, message.reply = replies[s];
      servers_[s]->come.push_back(std::move(message));
      servers_[s]->changed.notify_all();
    }
    for (std::size_t s = 0; s < servers_.size(); ++s) {
      Server& server = *servers_[s];
      try {
        wait_for(
            lock, server.answered, run_.world.stop(), run_.options.timeout, [&] { return replies[s]->done; },
            [] { return std::vector<int>(); });
      } catch (const DeadlineError&) {
        throw std::runtime_error(fmt::format("waited {} ms for the parameters of server {}, {}",
                                             run_.options.timeout.count(), s, wait_of(server)));
      }
    }
  }
  for (const account::ServerParameter& p : parameters_) {
    const program::Buffer& b = timeline_.role->buffers[static_cast<std::size_t>(p.value)];
    from_float(b.dtype, replies[static_cast<std::size_t>(p.server)]->values.data() + p.first, p.elements,
               memory.at(place_of(p.value)));
  }
  return admitted;
}

// With the mutex held.
std::string ParameterServers::wait_of(const Server& server) const {
  if (server.order.empty() || server.events.size() >= server.order.size()) return "which is busy";
  return fmt::format("which is to do first {}", act_text(server.order[server.events.size()]));
}

// With the mutex held. Whether the gradient is one of the step that is being gathered.
bool ParameterServers::counts(int worker, std::int64_t iteration) const {
  if (iteration != decided_.load()) return false;
  const auto members = members_.find(iteration);
  return members == members_.end() || members->second.contains(worker);
}

bool ParameterServers::push(int worker, std::int64_t iteration, const RankMemory& memory) {
  std::vector<std::vector<float>> gradients;
  for (const auto& server : servers_) gradients.emplace_back(server->values.size());
  for (const account::ServerParameter& p : parameters_) {
    const program::Buffer& b = timeline_.role->buffers[static_cast<std::size_t>(p.gradient)];
    to_float(b.dtype, memory.at(place_of(p.gradient)), p.elements,
             gradients[static_cast<std::size_t>(p.server)].data() + p.first);
  }
  const std::lock_guard lock(mutex_);
  const bool counted = !synchronous() || counts(worker, iteration);
  const auto send = [&](Message message) {
    for (std::size_t s = 0; s < servers_.size(); ++s) {
      Message own = message;
      if (own.kind == Kind::push) own.gradient = std::move(gradients[s]);
      servers_[s]->come.push_back(std::move(own));
      servers_[s]->changed.notify_all();
    }
  };
  if (counted) send({Kind::push, worker, iteration, {}, nullptr});
  ends_[static_cast<std::size_t>(worker)].push_back({Clock::now(), counted});
  if (counted && synchronous() && ++gathered_ == plan_.counted()) {
    gathered_ = 0;
    send({Kind::step, -1, iteration, {}, nullptr});
    steps_.push_back(Clock::now());
    decided_ = iteration + 1;
  }
  ended_[static_cast<std::size_t>(worker)] = iteration + 1;
  moved_.notify_all();
  return counted;
}

// With the mutex held: the first message that may be next.
bool ParameterServers::take(Server& server, Message& message) {
  auto next = server.come.begin();
  if (!server.order.empty()) {
    if (server.events.size() == server.order.size()) return false;
    const ServerEvent& due = server.order[server.events.size()];
    next = std::find_if(server.come.begin(), server.come.end(), [&](const Message& m) {
      return m.worker == due.worker && m.iteration == due.iteration &&
             (m.kind == Kind::pull) == (due.act == ServerAct::pull);
    });
  }
  if (next == server.come.end()) return false;
  message = std::move(*next);
  server.come.erase(next);
  return true;
}

// Without a deadline: it is workers that wait for servers and for one another.
void ParameterServers::serve(std::size_t number) {
  Server& server = *servers_[number];
  for (;;) {
    Message message;
    bool taken = false;
    {
      std::unique_lock lock(mutex_);
      wait_for(
          lock, server.changed, run_.world.stop(), std::chrono::milliseconds(0),
          [&] { return (taken = taken || take(server, message)) || closed_; }, [] { return std::vector<int>(); });
    }
    if (!taken) return;
    act(number, message);
  }
}

void ParameterServers::act(std::size_t number, Message& message) {
  Server& server = *servers_[number];
  const ServerEvent event{static_cast<std::int32_t>(number), message.worker, message.iteration,
                          message.kind == Kind::pull ? ServerAct::pull : ServerAct::apply};
  if (message.kind == Kind::pull) {
    const std::lock_guard lock(mutex_);
    server.events.push_back(event);
    message.reply->values = server.values;
    message.reply->done = true;
    server.answered.notify_all();
    return;
  }
  if (message.kind == Kind::step) return add_step(server);
  if (synchronous())
    server.gathered[message.worker] = std::move(message.gradient);
  else
    update(server, message.gradient);
  const std::lock_guard lock(mutex_);
  server.events.push_back(event);
}

// The mean of the gradients, added in the order of ranks.
void ParameterServers::add_step(Server& server) {
  std::vector<float> mean(server.values.size(), 0.0F);
  for (const auto& [worker, gradient] : server.gathered)
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += gradient[i];
  const auto count = static_cast<float>(server.gathered.size());
  for (float& g : mean) g /= count;
  server.gathered.clear();
  update(server, mean);
}

// Learning rates are of global batches, the optimizer's corrections of the updates that the server has made.
void ParameterServers::update(Server& server, const std::vector<float>& gradient) {
  if (server.values.empty()) return;
  const plan::Training& t = run_.scenario.training;
  const std::int64_t each = synchronous() ? 1 : plan_.counted();
  kernels::StepValues step = step_values(t, server.updates, run_.options.steps);
  step.lr = static_cast<float>(learning_rate(t, server.updates / each, run_.options.steps));
  ++server.updates;
  const kernels::In in{gradient.data(), DType::f32};
  const kernels::Out out{server.values.data(), DType::f32};
  const auto n = static_cast<std::int64_t>(server.values.size());
  const auto state = [](std::vector<float>& values) {
    return values.empty() ? kernels::Out() : kernels::Out{values.data(), DType::f32};
  };
  if (t.optimizer == plan::OptimizerKind::adamw)
    server.device->adamw(n, {t.beta1, t.beta2, t.eps, t.weight_decay, &step}, in, nullptr, out, nullptr,
                         state(server.exp_avg), state(server.exp_avg_sq));
  else
    server.device->sgd(n, {t.momentum, t.weight_decay, &step}, in, nullptr, out, nullptr, state(server.exp_avg));
}

void ParameterServers::finish() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  for (const auto& server : servers_) {
    server->changed.notify_all();
    if (server->thread.joinable()) server->thread.join();
  }
}

std::vector<ServerEvent> ParameterServers::events() const {
  std::vector<ServerEvent> all;
  for (const auto& server : servers_) all.insert(all.end(), server->events.begin(), server->events.end());
  return all;
}

Parameters ParameterServers::parameters() const {
  Parameters whole;
  for (const account::ServerParameter& p : parameters_) {
    const program::Buffer& b = timeline_.role->buffers[static_cast<std::size_t>(p.value)];
    const float* const from = servers_[static_cast<std::size_t>(p.server)]->values.data() + p.first;
    whole[parameter_name(b)].assign(from, from + p.elements);
  }
  return whole;
}

// Rates of a worker between the end of its first iteration and its last one that ended while all were under way.
void ParameterServers::add_to(result::Result& out) const {
  const plan::Training& t = run_.scenario.training;
  result::ParameterServers& p = out.servers;
  p.known = true;
  p.servers = plan_.servers, p.workers = plan_.data, p.backup_workers = plan_.backup_workers;
  p.consistency = synchronous()                               ? "synchronous"
                  : plan_.consistency == Consistency::bounded ? "bounded"
                                                              : "asynchronous";
  if (plan_.consistency == Consistency::bounded) p.bound = plan_.staleness;
  p.most_ahead = most_ahead_;
  Clock::time_point from = run_.began, to = Clock::time_point::max();
  for (const auto& own : ends_) from = std::max(from, own.front().when), to = std::min(to, own.back().when);
  double sum = 0;
  for (const auto& own : ends_) {
    std::size_t last = 0;
    for (std::size_t k = 1; k < own.size() && own[k].when <= to; ++k) {
      last = k;
      ++(own[k].counted ? p.updates : p.dropped);
    }
    const double seconds = seconds_between(own.front().when, own[last].when);
    p.iterations_per_s.push_back(seconds > 0 ? static_cast<double>(last) / seconds : 0);
    sum += p.iterations_per_s.back();
  }
  if (synchronous()) {
    const double seconds = seconds_between(steps_.front(), steps_.back());
    sum = seconds > 0 ? static_cast<double>(steps_.size() - 1) / seconds : 0;
  }
  p.window_ps = to > from ? Time::from_seconds(seconds_between(from, to)).ps() : 0;
  p.updates_per_s = sum;
  const double batch = static_cast<double>(t.global_batch) / static_cast<double>(synchronous() ? 1 : plan_.counted());
  p.samples_per_s = sum * batch;
  p.staleness = synchronous() ? std::vector<std::int64_t>{p.updates * plan_.servers}
                              : account::staleness_of(events(), 1, run_.options.steps);
  p.mean_staleness = account::mean_of_counts(p.staleness);
  std::int64_t all = 0, most = 0;
  for (const auto& server : servers_) {
    const auto n = static_cast<std::int64_t>(server->values.size());
    all += n, most = std::max(most, n);
  }
  const std::int64_t value =
      size_of(timeline_.role->buffers[static_cast<std::size_t>(parameters_.front().value)].dtype);
  p.parameter_bytes = all * value, p.gradient_bytes = all * 4, p.fullest_server_bytes = most * value;
  const Server& fullest = **std::max_element(servers_.begin(), servers_.end(), [](const auto& a, const auto& b) {
    return a->values.size() < b->values.size();
  });
  p.server_memory_bytes =
      4 * static_cast<std::int64_t>(fullest.values.size() + fullest.exp_avg.size() + fullest.exp_avg_sq.size());
  if (synchronous() || p.samples_per_s <= 0) return;
  const auto step = Time::from_seconds(static_cast<double>(t.global_batch) / p.samples_per_s);
  const double factor =
      static_cast<double>(step.ps()) / static_cast<double>(std::max<std::int64_t>(1, out.step_time_ps));
  std::int64_t left = step.ps();
  for (std::int64_t& share : out.breakdown_ps) {
    share = static_cast<std::int64_t>(static_cast<double>(share) * factor);
    left -= share;
  }
  *std::max_element(out.breakdown_ps.begin(), out.breakdown_ps.end()) += left;
  out.interval_low_s *= factor, out.interval_high_s *= factor;
  out.step_time_ps = step.ps();
  out.tokens_per_s = p.samples_per_s * static_cast<double>(run_.scenario.model.reads_text() ? t.seq_len : 1);
  out.tokens_per_s_per_gpu = out.tokens_per_s / static_cast<double>(out.ranks);
}

}  // namespace rehearse::execute
