// by_time's choice against every split there is, over small cases of a fixed seed.
#include "sim/run/layers_by_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>

namespace rehearse::run {
namespace {

std::int64_t slowest(const std::vector<LayerTimes>& times, const std::vector<int>& stage_of,
                     const std::vector<std::int64_t>& layers) {
  const auto stages = stage_times(times, stage_of, layers);
  return *std::max_element(stages.begin(), stages.end());
}

// The least over all splits of the layers into the parts, at least `fewest` each.
std::int64_t least_of_all(const std::vector<LayerTimes>& times, const std::vector<int>& stage_of,
                          std::vector<std::int64_t>& layers, std::int64_t left, std::int64_t fewest = 1) {
  const std::size_t parts_left = stage_of.size() - layers.size();
  std::int64_t least = INT64_MAX;
  if (parts_left == 1) {
    layers.push_back(left);
    least = slowest(times, stage_of, layers);
    layers.pop_back();
    return least;
  }
  for (std::int64_t own = fewest; own + (static_cast<std::int64_t>(parts_left) - 1) * fewest <= left; ++own) {
    layers.push_back(own);
    least = std::min(least, least_of_all(times, stage_of, layers, left - own, fewest));
    layers.pop_back();
  }
  return least;
}

struct Case {
  std::vector<LayerTimes> times;
  std::vector<int> stage_of;
};

// `alike`: a stage takes all layers alike.
Case random_case(std::mt19937& draw, int stages, int chunks, bool alike) {
  const auto up_to = [&](int most) { return static_cast<std::int64_t>(1 + draw() % static_cast<unsigned>(most)); };
  Case made;
  for (int part = 0; part < stages * chunks; ++part) made.stage_of.push_back(part % stages);
  const auto layers = static_cast<std::size_t>(stages * chunks + up_to(6));
  std::vector<std::int64_t> shape(layers);
  for (std::int64_t& layer : shape) layer = alike ? 1 : up_to(4);
  for (int s = 0; s < stages; ++s) {
    LayerTimes& times = made.times.emplace_back();
    const std::int64_t pace = up_to(9);
    for (const std::int64_t layer : shape) times.layers.push_back(layer * pace);
    times.first = pace * up_to(3), times.last = pace * up_to(5);
  }
  return made;
}

void expect_least(const Case& c, std::int64_t fewest = 1) {
  const auto layers = layers_by_time(c.times, c.stage_of, fewest);
  ASSERT_EQ(layers.size(), c.stage_of.size());
  EXPECT_GE(*std::min_element(layers.begin(), layers.end()), fewest);
  const auto count = static_cast<std::int64_t>(c.times[0].layers.size());
  EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), std::int64_t{0}), count);
  std::vector<std::int64_t> tried;
  EXPECT_EQ(slowest(c.times, c.stage_of, layers), least_of_all(c.times, c.stage_of, tried, count, fewest));
}

TEST(LayersByTime, IsTheBestOfAllSplitsOfUnlikeLayers) {
  std::mt19937 draw(7);
  for (int i = 0; i < 300; ++i) expect_least(random_case(draw, 2 + i % 3, 1, false));
}

TEST(LayersByTime, LeavesEachStageAsManyAsItNeeds) {
  std::mt19937 draw(13);
  for (int i = 0; i < 100; ++i) {
    Case c = random_case(draw, 2 + i % 2, 1, i % 2 == 0);
    for (LayerTimes& times : c.times)
      times.layers.insert(times.layers.end(), c.stage_of.size(), 1);  // two for each at least
    expect_least(c, 2);
  }
}

TEST(LayersByTime, IsTheBestOfAllSplitsInChunksOfLayersAlike) {
  std::mt19937 draw(11);
  for (int i = 0; i < 200; ++i) expect_least(random_case(draw, 2 + i % 2, 2 + i % 2, true));
}

TEST(LayersByTime, GivesTheHeadsStageFewer) {
  const LayerTimes even{{10, 10, 10, 10, 10, 10, 10, 10}, 0, 20};
  EXPECT_EQ(layers_by_time({even, even}, {0, 1}), (std::vector<std::int64_t>{5, 3}));
}

// What is behind the layers takes as long as four of them, so that it is best alone.
TEST(LayersByTime, LeavesTheLastPartNoneWhereThatMayBe) {
  const LayerTimes even{{10, 10, 10, 10, 10, 10, 10, 10}, 0, 40};
  EXPECT_EQ(layers_by_time({even, even, even}, {0, 1, 2}, 1, 0), (std::vector<std::int64_t>{4, 4, 0}));
  EXPECT_EQ(layers_by_time({even, even, even}, {0, 1, 2}, 1), (std::vector<std::int64_t>{3, 4, 1}));
  EXPECT_EQ(layers_by_time({even, even}, {0, 1, 1, 0}, 1, 0), (std::vector<std::int64_t>{2, 3, 3, 0}))
      << "of two parts each, both stages take 60";
}

TEST(LayersByTime, OfEquallyGoodSplitsTakesTheMostEven) {
  const LayerTimes even{{10, 10, 10, 10, 10, 10, 10}, 0, 20};
  EXPECT_EQ(layers_by_time({even, even, even, even}, {0, 1, 2, 3}), (std::vector<std::int64_t>{2, 2, 2, 1}))
      << "not 3, 2, 1, 1, whose slowest takes as long";
}

}  // namespace
}  // namespace rehearse::run
