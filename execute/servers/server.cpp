// See server.h.
#include "execute/servers/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "execute/checkpoint/checkpoints.h"
#include "sim/base/check.h"

namespace rehearse::execute {

using account::ServerAct;
using account::ServerEvent;
using plan::Consistency;
using Kind = ServerMessage::Kind;

Server::Server(Run& run, int number, const ServerOrder& order, bool remote)
    : run_(run),
      number_(number),
      order_(order),
      remote_(remote),
      due_(next_due(run.options, run.first_step)),
      state_(run.scenario, run.timeline(0), number, run.options.steps, run.threads_per_rank),
      applied_(static_cast<std::size_t>(run.grid.ranks()), run.first_step),
      ended_(applied_),
      done_(applied_.size()),
      last_word_(applied_.size(), Clock::now()),
      decided_(run.first_step) {
  if (run.checkpoints == nullptr) return;
  run.checkpoints->add(number, state_.saved_state(run.timeline(0)));
  if (run.first_step == 0) return;
  run.checkpoints->restore(number, state_.memory());
  state_.went_on_from(run.first_step);
  ready_ = true;
}

void Server::arrive(ServerMessage message) {
  const std::lock_guard lock(mutex_);
  const auto w = static_cast<std::size_t>(message.worker);
  message.come = last_word_[w] = Clock::now();
  switch (message.kind) {
    case Kind::done:
      done_[w] = true;
      break;
    case Kind::ended:
      message.verdict(counts(message.worker, message.iteration));
      ended_[w] = message.iteration + 1;
      break;
    case Kind::push:
      ended_[w] = message.iteration + 1;
      [[fallthrough]];
    default: {
      auto place = come_.end();
      while (place != come_.begin() && std::prev(place)->come == message.come &&
             std::prev(place)->worker > message.worker)
        --place;
      come_.insert(place, std::move(message));
    }
  }
  changed_.notify_all();
}

// With the mutex held: whether the gradient is one of the step that is being decided.
bool Server::counts(int worker, std::int64_t iteration) {
  if (iteration != decided_.load()) return false;
  const auto members = order_.members.find(iteration);
  if (members != order_.members.end() && !members->second.contains(worker)) return false;
  if (++gathered_ == run_.scenario.plan.counted()) {
    gathered_ = 0;
    decided_ = iteration + 1;
    if (tell_) tell_(iteration + 1);
  }
  return true;
}

std::int64_t Server::slowest() const {
  return *std::min_element(applied_.begin(), applied_.end());
}

bool Server::may_do(const ServerMessage& m) const {
  if (!ready_) return m.kind == Kind::begin;
  if (m.kind == Kind::begin) return true;
  if (order_.given && !synchronous()) {
    const auto& acts = order_.acts[static_cast<std::size_t>(number_)];
    if (events_.size() == acts.size()) return false;
    const ServerEvent& next = acts[events_.size()];
    return m.worker == next.worker && m.iteration == next.iteration &&
           (m.kind == Kind::pull) == (next.act == ServerAct::pull);
  }
  if (m.kind != Kind::pull) return true;
  if (m.iteration >= due_) return false;
  if (synchronous()) return state_.updates() >= m.iteration;
  const plan::Plan& plan = run_.scenario.plan;
  return plan.consistency == Consistency::asynchronous || slowest() >= m.iteration - plan.staleness;
}

// With the mutex held: the first message that may be next.
bool Server::take(ServerMessage& message) {
  const auto next = std::find_if(come_.begin(), come_.end(), [this](const ServerMessage& m) { return may_do(m); });
  if (next == come_.end()) return false;
  message = std::move(*next);
  come_.erase(next);
  if (message.kind == Kind::pull)
    most_ahead_ = std::max(most_ahead_, message.iteration - *std::min_element(ended_.begin(), ended_.end()));
  return true;
}

void Server::serve() {
  for (;;) {
    ServerMessage message;
    {
      std::unique_lock lock(mutex_);
      while (!take(message)) {
        const bool all_done = std::all_of(done_.begin(), done_.end(), [](bool done) { return done; });
        if (closed_ || all_done) return;
        if (run_.world.stop().requested()) throw Stopped(std::vector<int>());
        check_deadlines();
        changed_.wait_for(lock, kLook);
      }
    }
    act(message);
    save_if_due();
    if (remote_)
      run_.world.whereabouts(run_.world.here().front()).step.store(state_.updates(), std::memory_order_relaxed);
  }
}

void Server::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Server::act(ServerMessage& message) {
  const auto event = [&](ServerAct act) { events_.push_back({number_, message.worker, message.iteration, act}); };
  switch (message.kind) {
    case Kind::begin:
      state_.set_values(message.numbers);
      ready_ = true;
      return;
    case Kind::pull:
      event(ServerAct::pull);
      message.answer(Clock::now() - message.come, state_.values());
      return;
    case Kind::push:
      break;
    case Kind::ended:
    case Kind::done:
      REHEARSE_CHECK(false, "done on arrival");
  }
  const auto w = static_cast<std::size_t>(message.worker);
  event(ServerAct::apply);
  applied_[w] = message.iteration + 1;
  if (!synchronous()) return state_.update(message.numbers);
  const auto there = state_.gather(message.worker, std::move(message.numbers));
  if (static_cast<std::int64_t>(there) < run_.scenario.plan.counted()) return;
  state_.step();
  steps_ps_.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - run_.began).count() * 1000);
}

void Server::save_if_due() {
  if (run_.checkpoints == nullptr || (synchronous() ? state_.updates() : slowest()) < due_) return;
  run_.checkpoints->save(number_, due_, state_.memory());
  due_ = next_due(run_.options, due_);
}

// With the mutex held.
void Server::check_deadlines() const {
  const auto limit = run_.options.timeout;
  if (limit.count() <= 0) return;
  const Clock::time_point now = Clock::now();
  for (const ServerMessage& m : come_)
    if (m.kind == Kind::pull && now - met_at(m) >= limit) throw ServerWait(m.worker, wait_text(m));
  // For the last workers nobody waits but the end of the run.
  std::vector<int> last;
  for (std::size_t w = 0; w < done_.size(); ++w)
    if (!done_[w]) last.push_back(static_cast<int>(w));
  if (!remote_ || last.empty() || last.size() == done_.size()) return;
  if (now - *std::max_element(last_word_.begin(), last_word_.end()) < limit) return;
  std::string text = fmt::format("server {} {}, the last", number_, waited_text(limit, last));
  for (const int rank : last) text += "\n  " + run_.whereabouts(rank);
  throw ServerWait(last.front(), text);
}

// With the mutex held: asynchronous workers that meet at a step that is due wait for others at work for as long as
// these need. When the last of these spoke.
Clock::time_point Server::met_at(const ServerMessage& pull) const {
  Clock::time_point spoke = pull.come;
  if (synchronous() || pull.iteration < due_) return spoke;
  for (std::size_t w = 0; w < applied_.size(); ++w)
    if (applied_[w] < due_) spoke = std::max(spoke, last_word_[w]);
  return spoke;
}

// With the mutex held: who waited for whom.
std::string Server::wait_text(const ServerMessage& message) const {
  const auto limit = run_.options.timeout;
  const std::string who = fmt::format("rank {} ", message.worker);
  if (!ready_) return who + fmt::format("{}: server {} has no first values from rank 0", waited_text(limit), number_);
  if (order_.given && !synchronous()) {
    const auto& acts = order_.acts[static_cast<std::size_t>(number_)];
    if (events_.size() == acts.size())
      return who + fmt::format("{} for server {}, whose order is done", waited_text(limit), number_);
    const ServerEvent& next = acts[events_.size()];
    return who + fmt::format(
                     "{} for the parameters of server {}, which is to do first the {} of rank {}, iteration "
                     "{}\n  {}",
                     waited_text(limit), number_, next.act == ServerAct::pull ? "pull" : "gradient", next.worker,
                     next.iteration, run_.whereabouts(next.worker));
  }
  std::int64_t needed = std::min(message.iteration, due_);
  if (!synchronous() && message.iteration < due_) needed -= run_.scenario.plan.staleness;
  std::vector<int> behind;
  for (std::size_t w = 0; w < applied_.size(); ++w)
    if (synchronous() ? !state_.has(static_cast<int>(w)) : applied_[w] < needed) behind.push_back(static_cast<int>(w));
  std::string text =
      who + fmt::format("{}: server {} has not their gradients of iteration {}", waited_text(limit, behind), number_,
                        synchronous() ? state_.updates() : needed - 1);
  for (const int rank : behind) text += "\n  " + run_.whereabouts(rank);
  return text;
}

ServerRecord Server::record(bool values) const {
  ServerRecord r;
  r.server = number_, r.elements = state_.elements(), r.state_bytes = state_.bytes();
  r.events = events_, r.steps_ps = steps_ps_, r.most_ahead = most_ahead_;
  if (run_.checkpoints != nullptr) r.checkpoints = run_.checkpoints->use(number_);
  if (values) r.values.assign(state_.values().begin(), state_.values().end());
  return r;
}

}  // namespace rehearse::execute
