// Ranks of a transport for measuring it: threads of this process, over shared memory or, each in a world of its own as
// a process would be, over Gloo.
#include <array>
#include <thread>

#include "calibrate/transfers.h"
#include "execute/processes/local_world.h"
#include "execute/processes/process_world.h"
#include "sim/base/unfinished.h"

namespace rehearse::calibrate {
namespace {

constexpr std::chrono::milliseconds kTimeout{60'000};

// Worlds wait for one another while they are made, and may while they end: each in a thread of its own.
class GlooWorlds {
 public:
  explicit GlooWorlds(int ranks) : worlds_(static_cast<std::size_t>(ranks)) {
    const TemporaryFolder folder("calibrate");
    std::vector<std::exception_ptr> errors(worlds_.size());
    for_each([&](std::size_t i) {
      try {
        execute::ProcessOptions options;
        options.rank = static_cast<int>(i);
        options.ranks = ranks;
        options.folder = folder.path();
        options.timeout = kTimeout;
        worlds_[i] = execute::make_process_world(options);
        worlds_[i]->begin();
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
    for (const auto& error : errors)
      if (error) std::rethrow_exception(error);
  }
  ~GlooWorlds() {
    for_each([&](std::size_t i) { worlds_[i].reset(); });
  }
  GlooWorlds(const GlooWorlds&) = delete;
  GlooWorlds& operator=(const GlooWorlds&) = delete;
  execute::World& operator[](int rank) { return *worlds_[static_cast<std::size_t>(rank)]; }

 private:
  template <class Work>
  void for_each(Work work) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < worlds_.size(); ++i) threads.emplace_back([&work, i] { work(i); });
    for (auto& thread : threads) thread.join();
  }

  std::vector<std::unique_ptr<execute::World>> worlds_;
};

}  // namespace

RankGroup make_local_group(int ranks) {
  const std::shared_ptr<execute::World> world = execute::make_local_world(ranks, kTimeout);
  RankGroup group;
  group.keep = world;
  for (int rank = 0; rank < ranks; ++rank) group.communicators.push_back(&world->communicator(rank));
  group.stop = [w = world.get()] { w->stop().request(); };
  return group;
}

RankGroup make_gloo_group(int ranks) {
  const auto worlds = std::make_shared<GlooWorlds>(ranks);
  RankGroup group;
  group.keep = worlds;
  for (int rank = 0; rank < ranks; ++rank) group.communicators.push_back(&(*worlds)[rank].communicator(rank));
  group.stop = [w = worlds.get(), ranks] {
    for (int rank = 0; rank < ranks; ++rank) (*w)[rank].stop().request();
  };
  return group;
}

}  // namespace rehearse::calibrate
