// See parameter_servers.h. An instant: first all events of its time, then what they have brought, worker by worker,
// then what the servers do with it; this until nothing is left of the instant, and the network solves its shares once.
#include "sim/engine/parameter_servers.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"
#include "sim/engine/event_queue.h"
#include "sim/engine/longest_run.h"
#include "sim/engine/network.h"

namespace rehearse::engine {

namespace {

using account::ServerAct;
using plan::Consistency;

constexpr int kKindBits = 28;
enum ServedEvent : std::uint32_t { kComputed, kMoves, kArrives, kServed, kActivity };

class ServedSimulation {
 public:
  ServedSimulation(const ServedWork& work, const cluster::Cluster& cluster)
      : work_(work),
        network_(cluster, queue_, kActivity << kKindBits),
        faults_(work.noise, work.sample, cluster.resources()),
        workers_(size(work.workers)),
        servers_(size(work.servers)),
        messages_(size(work.workers) * size(work.servers)) {
    REHEARSE_CHECK(work.iterations > 0 && work.counted > 0 && work.counted <= work.workers,
                   "{} iterations, {} of {} workers", work.iterations, work.counted, work.workers);
    for (std::size_t m = 0; m < messages_.size(); ++m) {
      define(work.pulls.at(m), messages_[m].pull);
      define(work.pushes.at(m), messages_[m].push);
    }
    run_.link_bytes.assign(cluster.resources().size(), 0);
    run_.iterations.resize(workers_.size());
  }

  ServedRun run() {
    if (faults_.next() == Time()) change_links();
    for (int w = 0; w < work_.workers; ++w) ask_when_free(w);
    for (;;) {
      check_interrupt();
      serve();
      network_.settle(now_);
      if (queue_.empty()) break;
      if (queue_.next_time() > now_) now_ = std::min(queue_.next_time(), faults_.next());
      require_countable(now_);
      if (now_ == faults_.next()) change_links();
      while (!queue_.empty() && queue_.next_time() == now_) {
        queue_.take(instant_);
        for (const Event& event : instant_) dispatch(event);
      }
      take_arrivals();
    }
    for (const Worker& w : workers_)
      REHEARSE_CHECK(w.iteration == work_.iterations, "a worker stands still in iteration {}", w.iteration);
    return outcome();
  }

 private:
  enum class State : unsigned char { held, pulling, computing, pushing, done };
  struct Worker {
    State state = State::held;
    std::int64_t iteration = 0;  // that it is in
    std::uint32_t version = 0;   // of its computation
    int left = 0;                // messages of it under way
  };
  struct Request {
    int worker = 0;
    std::int64_t iteration = 0;
    enum Kind : unsigned char { pull, push, step } kind = pull;
  };
  struct Server {
    std::deque<Request> queue;
    bool busy = false;
    Request now;
    Time busy_time, since;
    std::vector<account::ServerEvent> events;
  };
  struct Defined {
    std::vector<ActivityId> activities;
    Time copy_out, startup, copy_in;
  };
  struct Message {
    Defined pull, push;
    bool is_pull = false;
    std::int64_t iteration = 0;
    std::size_t moving = 0;  // activities
  };

  static std::size_t size(int n) { return static_cast<std::size_t>(n); }
  bool synchronous() const { return work_.consistency == Consistency::synchronous; }
  std::size_t message_of(int worker, int server) const { return size(worker) * servers_.size() + size(server); }
  int worker_of(std::size_t message) const { return static_cast<int>(message / servers_.size()); }
  int server_of(std::size_t message) const { return static_cast<int>(message % servers_.size()); }
  ServedRun::Iteration& record(int w) {
    return run_.iterations[size(w)][static_cast<std::size_t>(workers_[size(w)].iteration)];
  }

  void define(const collective::TransferPlan& plan, Defined& to) {
    to.copy_out = plan.copy_out, to.startup = plan.startup, to.copy_in = plan.copy_in;
    for (const collective::Activity& activity : plan.activities)
      if (activity.min_duration > Time()) {
        to.activities.push_back(network_.define(activity));
        uses_.push_back(activity.uses);
      }
  }

  void at(Time when, ServedEvent kind, std::size_t about, std::uint32_t version = 0) {
    queue_.push(when, (kind << kKindBits) | static_cast<std::uint32_t>(about), version);
  }

  void change_links() {
    faults_.apply(now_, [this](cluster::ResourceId link, std::int64_t per_s) { network_.set_capacity(link, per_s); });
  }

  void dispatch(const Event& event) {
    const std::size_t about = event.target & ((1u << kKindBits) - 1);
    switch (static_cast<ServedEvent>(event.target >> kKindBits)) {
      case kComputed:
        if (workers_[about].version == event.version) push(static_cast<int>(about));
        return;
      case kMoves:
        return move(about);
      case kArrives:
        arrived_.push_back(about);
        return;
      case kServed:
        return end_service(static_cast<int>(about));
      case kActivity: {
        const auto slot = static_cast<std::uint32_t>(about);
        if (!network_.current(slot, event.version)) return;
        const auto owner = static_cast<std::size_t>(network_.finish(slot));
        if (--messages_[owner].moving == 0) end_of_moving(owner);
        return;
      }
    }
  }

  // A worker is where it would ask for the parameters of its iteration; it does unless it must wait for others.
  void ask_when_free(int w) {
    Worker& worker = workers_[size(w)];
    if (worker.iteration == work_.iterations) {
      worker.state = State::done;
      return;
    }
    worker.state = State::held;
    if (synchronous() ? worker.iteration > applied_
                      : work_.consistency == Consistency::bounded && worker.iteration > slowest() + work_.bound)
      return;
    run_.most_ahead = std::max(run_.most_ahead, worker.iteration - slowest());
    run_.iterations[size(w)].emplace_back();
    record(w).asked = now_;
    worker.state = State::pulling;
    worker.left = work_.servers;
    for (Server& server : servers_) server.queue.push_back({w, worker.iteration, Request::pull});
  }

  // Iterations that the slowest worker has ended.
  std::int64_t slowest() const {
    std::int64_t least = work_.iterations;
    for (const Worker& w : workers_) least = std::min(least, w.iteration);
    return least;
  }

  void begin_computing(int w) {
    Worker& worker = workers_[size(w)];
    record(w).began = now_;
    if (synchronous() && worker.iteration < decided_) {  // without it, while it pulled
      give_up(w);
      return ask_when_free(w);
    }
    worker.state = State::computing;
    at(now_ + work_.compute(w, worker.iteration), kComputed, size(w), ++worker.version);
  }

  void push(int w) {
    Worker& worker = workers_[size(w)];
    record(w).computed = now_;
    worker.state = State::pushing;
    worker.left = work_.servers;
    for (int s = 0; s < work_.servers; ++s) send(message_of(w, s), false, worker.iteration);
  }

  Factor factor(std::size_t m) const {
    const Message& message = messages_[m];
    if (!work_.message_factor) return kFactorOne;
    return work_.message_factor(worker_of(m), server_of(m), message.is_pull, message.iteration);
  }

  void send(std::size_t m, bool is_pull, std::int64_t iteration) {
    Message& message = messages_[m];
    message.is_pull = is_pull, message.iteration = iteration;
    const Defined& how = is_pull ? message.pull : message.push;
    at(now_ + times(how.copy_out + how.startup, factor(m)), kMoves, m);
  }

  void move(std::size_t m) {
    Message& message = messages_[m];
    const Defined& how = message.is_pull ? message.pull : message.push;
    message.moving = how.activities.size();
    if (message.moving == 0) return end_of_moving(m);
    for (const ActivityId activity : how.activities)
      network_.start(activity, static_cast<std::int32_t>(m), now_, factor(m));
  }

  void end_of_moving(std::size_t m) {
    const Message& message = messages_[m];
    const Defined& how = message.is_pull ? message.pull : message.push;
    for (const ActivityId activity : how.activities) moved_.push_back({now_, activity});
    at(now_ + times(how.copy_in, factor(m)), kArrives, m);
  }

  // Messages of this instant, worker by worker.
  void take_arrivals() {
    std::sort(arrived_.begin(), arrived_.end());
    for (const std::size_t m : std::exchange(arrived_, {})) {
      const int w = worker_of(m);
      Worker& worker = workers_[size(w)];
      const Message& message = messages_[m];
      if (!message.is_pull && !synchronous())
        servers_[size(server_of(m))].queue.push_back({w, message.iteration, Request::push});
      if (--worker.left > 0) continue;
      message.is_pull ? begin_computing(w) : end_of_push(w);
    }
    let_go();
  }

  void end_of_push(int w) {
    Worker& worker = workers_[size(w)];
    record(w).ended = now_;
    if (!synchronous()) {
      ++worker.iteration;
      ask_when_free(w);
      return;
    }
    const bool counts = worker.iteration == decided_;  // else it comes late
    record(w).counted = counts;
    if (counts) {
      for (Server& server : servers_) server.queue.push_back({w, worker.iteration, Request::push});
      if (++gathered_ == work_.counted) decide();
    }
    ++worker.iteration;
    ask_when_free(w);
  }

  // The gradients of a step are there.
  void decide() {
    gathered_ = 0;
    for (Server& server : servers_) server.queue.push_back({-1, decided_, Request::step});
    for (int w = 0; w < work_.workers; ++w) {
      const Worker& worker = workers_[size(w)];
      if (worker.state == State::computing && worker.iteration == decided_) give_up(w);
    }
    ++decided_;
  }

  void give_up(int w) {
    Worker& worker = workers_[size(w)];
    ++worker.version;
    record(w).computed = record(w).ended = now_;
    record(w).counted = false;
    ++worker.iteration;
    worker.state = State::held;
  }

  // Workers that waited for others, where these have come so far.
  void let_go() {
    for (int w = 0; w < work_.workers; ++w)
      if (workers_[size(w)].state == State::held) ask_when_free(w);
  }

  void serve() {
    for (bool any = true; any;) {
      any = false;
      for (int s = 0; s < work_.servers; ++s) {
        Server& server = servers_[size(s)];
        while (!server.busy && !server.queue.empty()) {
          any = true;
          server.now = server.queue.front();
          server.queue.pop_front();
          begin_service(s);
        }
      }
    }
  }

  void begin_service(int s) {
    Server& server = servers_[size(s)];
    const Request& r = server.now;
    if (r.kind == Request::pull) {
      server.events.push_back({s, r.worker, r.iteration, ServerAct::pull});
      return send(message_of(r.worker, s), true, r.iteration);
    }
    server.busy = true;
    server.since = now_;
    const bool adds = r.kind == Request::push && synchronous();
    at(now_ + (adds ? work_.add : work_.update).at(size(s)), kServed, size(s));
  }

  void end_service(int s) {
    Server& server = servers_[size(s)];
    server.busy = false;
    busy_.push_back({s, server.since, now_});
    if (server.now.kind == Request::push)
      server.events.push_back({s, server.now.worker, server.now.iteration, ServerAct::apply});
    else if (++applied_by_ == work_.servers) {
      applied_by_ = 0;
      ++applied_;
      run_.steps.push_back(now_);
    }
  }

  // The steady run: all workers have ended their first iteration, and none its last.
  ServedRun outcome() {
    for (Server& server : servers_) run_.events.insert(run_.events.end(), server.events.begin(), server.events.end());
    run_.to = Time::max();
    for (const auto& own : run_.iterations) {
      run_.from = std::max(run_.from, own.front().ended);
      run_.to = std::min(run_.to, own.back().ended);
    }
    run_.server_busy.resize(servers_.size());
    for (const Busy& b : busy_) {
      const Time from = std::max(b.from, run_.from), to = std::min(b.to, run_.to);
      if (from < to) run_.server_busy[size(b.server)] = run_.server_busy[size(b.server)] + (to - from);
    }
    for (const auto& [when, activity] : moved_)
      if (when > run_.from && when <= run_.to)
        for (const collective::Use& use : uses_[activity.index()])
          run_.link_bytes[static_cast<std::size_t>(use.resource)] += use.bytes;
    return std::move(run_);
  }

  struct Busy {
    int server;
    Time from, to;
  };

  const ServedWork& work_;
  EventQueue queue_;
  Network network_;
  LinkFaults faults_;
  Time now_;
  std::vector<Worker> workers_;
  std::vector<Server> servers_;
  std::vector<Message> messages_;
  std::vector<Event> instant_;
  std::vector<std::size_t> arrived_;
  std::vector<std::vector<collective::Use>> uses_;  // by activity defined
  std::vector<Busy> busy_;
  std::vector<std::pair<Time, ActivityId>> moved_;
  std::int64_t decided_ = 0, applied_ = 0;  // steps whose gradients are there; that all servers have applied
  int gathered_ = 0, applied_by_ = 0;
  ServedRun run_;
};

}  // namespace

ServedRun run_servers(const ServedWork& work, const cluster::Cluster& cluster) {
  return ServedSimulation(work, cluster).run();
}

}  // namespace rehearse::engine
