// Events come in the order of their times, all of them once.
#include "sim/engine/event_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace rehearse::engine {
namespace {

TEST(EventQueue, TakesInstantsInOrderWithAllTheirEvents) {
  std::mt19937_64 random(1);
  for (const std::int64_t span : std::initializer_list<std::int64_t>{10, 5000, 1'000'000'000'000'000}) {
    EventQueue queue;
    std::map<Time, std::vector<std::uint32_t>> expected;
    for (std::uint32_t i = 0; i < 10'000; ++i) {
      const Time time = Time::from_ps(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(span)));
      queue.push(time, i, i + 1);
      expected[time].push_back(i);
    }
    std::vector<Event> events;
    for (const auto& [time, targets] : expected) {
      std::vector<std::uint32_t> taken;
      while (queue.next_time() == time) {
        queue.take(events);
        for (const Event& event : events) {
          EXPECT_EQ(event.version, event.target + 1);
          taken.push_back(event.target);
        }
      }
      std::sort(taken.begin(), taken.end());
      EXPECT_EQ(taken, targets);
    }
    EXPECT_TRUE(queue.empty());
    EXPECT_EQ(queue.next_time(), Time::max());
  }
}

// What is pushed for the instant being taken comes up in it, after what was there.
TEST(EventQueue, AnInstantGoesOnAsLongAsEventsArePushedForIt) {
  EventQueue queue;
  std::vector<Event> events;
  queue.push(Time::from_ps(5), 1, 0);
  queue.push(Time::from_ps(6), 2, 0);
  queue.take(events);
  queue.push(Time::from_ps(5), 3, 0);
  EXPECT_EQ(queue.next_time(), Time::from_ps(5));
  queue.take(events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].target, 3u);
  EXPECT_EQ(queue.next_time(), Time::from_ps(6));
}

}  // namespace
}  // namespace rehearse::engine
