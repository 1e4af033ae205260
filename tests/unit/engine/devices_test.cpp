// What transfers hold of devices, and who is told of it.
#include "sim/engine/simulator/devices.h"

#include <gtest/gtest.h>

#include <vector>

namespace rehearse::engine {
namespace {

std::vector<RankId> changed(Devices& devices) {
  std::vector<RankId> ranks;
  devices.for_changed([&](RankId rank, StateId state) {
    EXPECT_EQ(state, devices.state(rank));
    ranks.push_back(rank);
  });
  return ranks;
}

TEST(Devices, HoldsAddUpAndAreGivenBack) {
  Devices devices(2);
  const HoldId eight = devices.states().hold({8, 0}), four = devices.states().hold({4, 100});
  devices.take(RankId(1), eight);
  devices.take(RankId(1), four);
  EXPECT_EQ(devices.states().value(devices.state(RankId(1))).sms_held, 12);
  EXPECT_EQ(devices.state(RankId(0)), kAlone) << "the other rank's device is its own";
  devices.give_back(RankId(1), eight);
  EXPECT_EQ(devices.states().value(devices.state(RankId(1))).sms_held, 4);
  EXPECT_EQ(devices.states().value(devices.state(RankId(1))).bandwidth_taken, 100);
  devices.give_back(RankId(1), four);
  EXPECT_EQ(devices.state(RankId(1)), kAlone);
}

TEST(Devices, ARankIsNamedOnceForAllThatHappenedToIt) {
  Devices devices(3);
  const HoldId eight = devices.states().hold({8, 0});
  devices.take(RankId(2), eight);
  devices.take(RankId(0), eight);
  devices.give_back(RankId(2), eight);
  devices.take(RankId(1), kHoldsNothing);
  EXPECT_EQ(changed(devices), (std::vector<RankId>{RankId(2), RankId(0)}));
  EXPECT_TRUE(changed(devices).empty()) << "nothing since";
  devices.take(RankId(2), eight);
  EXPECT_EQ(changed(devices), std::vector<RankId>{RankId(2)});
}

}  // namespace
}  // namespace rehearse::engine
