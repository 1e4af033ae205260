// See local_servers.h.
#include "execute/servers/local_servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace rehearse::execute {

using Kind = ServerMessage::Kind;

namespace {

// What comes back of a pull; whoever asked may have gone.
struct Answers {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::vector<float>> values;
  std::vector<bool> come;
  std::chrono::nanoseconds held{0};
};

}  // namespace

LocalServers::LocalServers(Run& run)
    : ParameterServers(run), order_(server_order(run.scenario, run.options, run.first_step)) {
  for (std::size_t s = 0; s < servers(); ++s)
    servers_.push_back(std::make_unique<Server>(run, static_cast<int>(s), order_, false));
  for (const auto& server : servers_) threads_.emplace_back([this, &server] { serve(*server); });
}

LocalServers::~LocalServers() {
  finish();
}

void LocalServers::serve(Server& server) {
  try {
    server.serve();
  } catch (const Stopped&) {
  } catch (const ServerWait& wait) {
    run_.world.failures().fail(wait.rank(), wait.what());
  } catch (const std::exception& error) {
    run_.world.failures().fail(0, fmt::format("a parameter server failed: {}", error.what()));
  }
}

void LocalServers::finish() {
  for (const auto& server : servers_) server->close();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

ServedRecords LocalServers::records() const {
  ServedRecords all;
  all.workers = workers();
  for (const auto& server : servers_) all.servers.push_back(server->record(run_.options.keep_parameters));
  return all;
}

void LocalServers::begin(Shards values) {
  for (std::size_t s = 0; s < servers(); ++s) {
    ServerMessage message;
    message.kind = Kind::begin, message.worker = 0, message.numbers = std::move(values[s]);
    servers_[s]->arrive(std::move(message));
  }
}

Clock::time_point LocalServers::get(int worker, std::int64_t iteration, Shards& values) {
  const auto answers = std::make_shared<Answers>();
  answers->values.resize(servers()), answers->come.resize(servers());
  const Clock::time_point asked = Clock::now();
  for (std::size_t s = 0; s < servers(); ++s) {
    ServerMessage message;
    message.kind = Kind::pull, message.worker = worker, message.iteration = iteration;
    message.answer = [answers, s](std::chrono::nanoseconds held, std::span<const float> numbers) {
      const std::lock_guard lock(answers->mutex);
      answers->values[s].assign(numbers.begin(), numbers.end());
      answers->held = std::max(answers->held, held);
      answers->come[s] = true;
      answers->changed.notify_all();
    };
    servers_[s]->arrive(std::move(message));
  }
  std::unique_lock lock(answers->mutex);
  const auto all = [&] { return std::find(answers->come.begin(), answers->come.end(), false) == answers->come.end(); };
  const auto limit = run_.options.timeout;
  try {
    wait_for(lock, answers->changed, run_.world.stop(), limit.count() > 0 ? limit + kForServersToSpeak : limit, all,
             [] { return std::vector<int>(); });
  } catch (const DeadlineError&) {
    const auto late = std::find(answers->come.begin(), answers->come.end(), false) - answers->come.begin();
    throw std::runtime_error(fmt::format("{} for the parameters of server {}, which is busy",
                                         waited_text(limit + kForServersToSpeak), late));
  }
  values = std::move(answers->values);
  return asked + answers->held;
}

bool LocalServers::ask_whether_counts(int worker, std::int64_t iteration) {
  ServerMessage message;
  bool counts = false;
  message.kind = Kind::ended, message.worker = worker, message.iteration = iteration;
  message.verdict = [&counts](bool verdict) { counts = verdict; };
  servers_.front()->arrive(std::move(message));
  return counts;
}

void LocalServers::send(int worker, std::int64_t iteration, Shards gradients) {
  for (std::size_t s = 0; s < servers(); ++s) {
    ServerMessage message;
    message.kind = Kind::push, message.worker = worker, message.iteration = iteration;
    message.numbers = std::move(gradients[s]);
    servers_[s]->arrive(std::move(message));
  }
}

}  // namespace rehearse::execute
