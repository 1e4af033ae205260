// See server_process.h. A thread for each worker receives what comes from it; one thread does what is to be done, and
// the caller's looks after the user's wishes meanwhile.
#include "execute/servers/server_process.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "execute/servers/server.h"
#include "execute/servers/server_wire.h"
#include "sim/base/check.h"

namespace rehearse::execute {

using account::ServerParameter;
using Kind = ServerMessage::Kind;

class ServerProcess::Impl {
 public:
  explicit Impl(Run& run)
      : run_(run),
        number_(run.world.here().front() - run.grid.ranks()),
        wire_(*run.world.wire()),
        parameters_(account::server_parameters(*run.timeline(0).role, static_cast<int>(run.scenario.plan.servers))),
        values_(*run.timeline(0).role, parameters_, number_, &ServerParameter::value),
        gradients_(*run.timeline(0).role, parameters_, number_, &ServerParameter::gradient),
        order_(server_order(run.scenario, run.options, run.first_step)),
        server_(run, number_, order_, true) {
    if (run.scenario.plan.backup_workers > 0)
      server_.on_decided([this](std::int64_t steps) {
        for (int worker = 0; worker < run_.grid.ranks(); ++worker)
          wire_.post(worker, kServedLane, served_tag(ServedTopic::decided, steps - 1), "d");
      });
  }

  void serve() {
    std::vector<std::thread> threads;
    for (int worker = 0; worker < run_.grid.ranks(); ++worker)
      threads.emplace_back([this, worker] { reporting([&] { receive_from(worker); }); });
    threads.emplace_back([this] {
      reporting([&] { server_.serve(); });
      ended_ = true;
    });
    try {
      while (!ended_) {
        if (run_.options.poll) run_.options.poll();
        std::this_thread::sleep_for(kLook / 10);
      }
    } catch (...) {
      run_.world.stop().request();
      for (std::thread& thread : threads) thread.join();
      throw;
    }
    for (std::thread& thread : threads) thread.join();
  }

  ServedRecords records() const { return {{}, {server_.record(run_.options.keep_parameters)}}; }

 private:
  template <class Work>
  void reporting(Work work) {
    const int rank = run_.world.here().front();
    try {
      work();
    } catch (const WaitEnded&) {
    } catch (const std::exception& error) {
      const bool wait = dynamic_cast<const ServerWait*>(&error) != nullptr;
      run_.world.failures().fail(
          rank, wait ? error.what() : fmt::format("rank {} (server {}) failed: {}", rank, number_, error.what()));
    }
  }

  // Whether it came; not if the run was stopped before.
  bool receive(int worker, ServedTopic topic, std::int64_t number, void* to, std::size_t bytes) {
    const auto transfer = wire_.receive(worker, kServedLane, served_tag(topic, number), to, bytes);
    while (!wire_.look(*transfer))
      if (run_.world.stop().requested()) return false;
    return true;
  }

  void receive_from(int worker) {
    for (std::int64_t number = 0;; ++number) {
      ServedHeader header;
      if (!receive(worker, ServedTopic::header, number, &header, sizeof header)) return;
      ServerMessage message;
      message.kind = header.kind, message.worker = worker, message.iteration = header.iteration;
      if (header.kind == Kind::begin || header.kind == Kind::push) {
        const ShardBytes& shard = header.kind == Kind::begin ? values_ : gradients_;
        REHEARSE_CHECK(header.bytes == shard.bytes(), "{} bytes from rank {} for {}", header.bytes, worker,
                       shard.bytes());
        std::string body(static_cast<std::size_t>(header.bytes), '\0');
        if (header.bytes > 0 && !receive(worker, ServedTopic::body, number, body.data(), body.size())) return;
        message.numbers.resize(static_cast<std::size_t>(account::server_elements(
            parameters_, static_cast<int>(run_.scenario.plan.servers))[static_cast<std::size_t>(number_)]));
        shard.unpack(body.data(), message.numbers);
      } else if (header.kind == Kind::pull) {
        message.answer = [this, worker, iteration = header.iteration](std::chrono::nanoseconds held,
                                                                      std::span<const float> numbers) {
          const std::int64_t wait = held.count();
          std::string body(sizeof wait + static_cast<std::size_t>(values_.bytes()), '\0');
          std::memcpy(body.data(), &wait, sizeof wait);
          values_.pack(numbers, body.data() + sizeof wait);
          wire_.post(worker, kServedLane, served_tag(ServedTopic::values, iteration), std::move(body));
        };
      } else if (header.kind == Kind::ended) {
        message.verdict = [this, worker, iteration = header.iteration](bool counts) {
          wire_.post(worker, kServedLane, served_tag(ServedTopic::verdict, iteration), {counts ? '\1' : '\0'});
        };
      }
      server_.arrive(std::move(message));
      if (header.kind == Kind::done) return show_life(worker);
    }
  }

  // To a worker that is done, until the server is.
  void show_life(int worker) {
    std::int64_t number = 0;
    const auto show = [&](char sign) {
      wire_.post(worker, kControlLane, served_tag(ServedTopic::life, number++), {sign});
    };
    Clock::time_point next = Clock::now();
    while (!ended_) {
      if (run_.world.stop().requested()) return;
      if (Clock::now() >= next) {
        show(kServing);
        next = Clock::now() + kBetweenSigns;
      }
      std::this_thread::sleep_for(kLook / 10);
    }
    if (!run_.world.stop().requested()) show(kServed);
  }

  Run& run_;
  const int number_;
  Wire& wire_;
  const std::vector<ServerParameter> parameters_;
  const ShardBytes values_, gradients_;
  const ServerOrder order_;
  Server server_;
  std::atomic<bool> ended_ = false;  // it serves no more
};

ServerProcess::ServerProcess(Run& run) : impl_(std::make_unique<Impl>(run)) {}
ServerProcess::~ServerProcess() = default;

void ServerProcess::serve() {
  impl_->serve();
}

ServedRecords ServerProcess::records() const {
  return impl_->records();
}

}  // namespace rehearse::execute
