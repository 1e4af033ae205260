// The emulator itself: a checker that sees nothing would pass every kernel. Each wrong kernel is caught, and its right
// twin is not. Launch orders take turns, so everything is done three times.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/gpu/emulator_tests/broken_kernels.h"

namespace rehearse::kernels::cuda {
namespace {

class Emulator : public testing::Test {
 protected:
  Emulator() : memory(256 * sizeof(int)) {
    std::vector<int> numbers(256);
    std::iota(numbers.begin(), numbers.end(), 0);
    copy(memory.data(), numbers.data(), memory.bytes(), stream);
  }
  std::vector<int> read() {
    std::vector<int> numbers(256);
    copy(numbers.data(), memory.data(), memory.bytes(), stream);
    return numbers;
  }
  int* data() const { return memory.as<int>(); }

  // What running it finds; empty: nothing.
  template <class F>
  static std::string found(F&& f) {
    try {
      f();
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return {};
  }
#define EXPECT_FOUND(expression, text)                                          \
  for (int order = 0; order < 3; ++order) {                                     \
    const std::string what = found([&] { expression; });                        \
    EXPECT_NE(what.find(text), std::string::npos) << "found: '" << what << "'"; \
  }
#define EXPECT_CLEAN(expression) \
  for (int order = 0; order < 3; ++order) EXPECT_EQ(found([&] { expression; }), "")

  Stream stream;
  DeviceMemory memory;
};

TEST_F(Emulator, RacesInSharedMemory) {
  EXPECT_CLEAN(broken::reverse_block(true, data(), stream));
  EXPECT_EQ(read()[0], 63);  // three times reversed
#ifdef REHEARSE_CHECKED
  const bool seen = !found([&] { broken::reverse_block(false, data(), stream); }).empty();
  EXPECT_TRUE(seen);  // a race, or a read of what is not written yet, whichever comes first
  EXPECT_CLEAN(broken::neighbours_of_warp(true, data(), stream));
  EXPECT_NE(found([&] { broken::neighbours_of_warp(false, data(), stream); }), "");
#endif
}

TEST_F(Emulator, BarriersThatSomeThreadsMiss) {
  EXPECT_CLEAN(broken::branch_barrier(true, stream));
  EXPECT_FOUND(broken::branch_barrier(false, stream), "7 at __syncthreads, 0 in a warp function, 57 have ended");
  EXPECT_CLEAN(broken::warp_sum_of(0xFFFF, data(), stream));
  EXPECT_EQ(read()[0], 120);
  EXPECT_FOUND(broken::warp_sum_of(0xFFFFFFFF, data(), stream), "16 in a warp function, 16 have ended");
  EXPECT_FOUND(broken::warp_sum_of(0xFF, data(), stream), "leaves the caller out");
}

TEST_F(Emulator, AccessesOutsideWhatTheyMay) {
#ifdef REHEARSE_CHECKED
  EXPECT_CLEAN(broken::write_from_blocks(1, data(), stream));
  EXPECT_FOUND(broken::write_from_blocks(0, data(), stream), "in device memory: it is written after");
  EXPECT_CLEAN(broken::read_past(data(), 255, stream));
  EXPECT_FOUND(broken::read_past(data(), 256, stream), "outside any allocation");
  EXPECT_FOUND(broken::read_past(data(), -1, stream), "outside any allocation");
  EXPECT_CLEAN(broken::read_wide(data() + 4, data(), stream));
  EXPECT_FOUND(broken::read_wide(data() + 5, data(), stream), "misaligned");
#else
  GTEST_SKIP() << "accesses are not checked in builds with a sanitizer";
#endif
}

TEST_F(Emulator, AtomicsCountAndNeedABeginning) {
  EXPECT_CLEAN(broken::count_in_shared(true, data(), stream));
  EXPECT_EQ(read()[0], 96);
  EXPECT_EQ(read()[2], 96);
}

TEST_F(Emulator, VotesAndShuffles) {
  for (int order = 0; order < 3; ++order) {
    broken::votes(data(), stream);
    const std::vector<int> out = read();
    EXPECT_EQ(out[0], static_cast<int>(0xAAAAAAAAU));
    EXPECT_EQ(out[1], static_cast<int>(0xFF000000U));
    EXPECT_EQ(out[2], 30);
    EXPECT_EQ(out[3], 31);  // the last of eight keeps its own
    EXPECT_EQ(out[4], 16);
    EXPECT_EQ(out[5], 31);
    EXPECT_EQ(out[6], 40);
    EXPECT_EQ(out[7], 0);
    EXPECT_EQ(out[8], 1);
  }
}

TEST_F(Emulator, DynamicSharedMemoryUpToWhatADeviceHas) {
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{100} << 10, std::size_t{227} << 10}) {
    broken::dynamic_shared(bytes, data(), stream);
    EXPECT_EQ(read()[0], 42);
  }
  EXPECT_THROW(broken::dynamic_shared(std::size_t{228} << 10, data(), stream), DeviceError);
}

// A graph takes what other streams do between two events, and nothing may wait or allocate while it is recorded.
TEST_F(Emulator, GraphsOfTwoStreams) {
  Stream other;
  const Event fork, join;
  DeviceMemory sum(sizeof(int));
  const Graph graph(stream, [&] {
    broken::reverse_block(true, data(), stream);
    stream.record(fork);
    other.wait(fork);
    broken::warp_sum_of(0xFFFF, sum.as<int>(), other);
    other.record(join);
    stream.wait(join);
    EXPECT_THROW(stream.synchronize(), DeviceError);
    EXPECT_THROW(DeviceMemory(16), DeviceError);
  });
  EXPECT_EQ(graph.nodes(), 2U);
  EXPECT_EQ(read()[0], 0);
  graph.launch(stream);
  EXPECT_EQ(read()[0], 63);
  int total = 0;
  copy(&total, sum.data(), sizeof total, stream);
  EXPECT_EQ(total, 120);
  other.synchronize();
}

TEST_F(Emulator, DeviceFactsAndErrors) {
  EXPECT_EQ(why_no_device(), "");
  EXPECT_EQ(device_count(), 1);
  const DeviceFacts facts = device_facts(0);
  EXPECT_EQ(facts.name, "emulated device");
  EXPECT_EQ(facts.multiprocessors, 132);
  try {
    (void)device_facts(1);
    ADD_FAILURE() << "a device that is not there";
  } catch (const DeviceError& e) {
    EXPECT_EQ(e.code(), static_cast<int>(cudaErrorInvalidDevice));
    EXPECT_NE(std::string(e.what()).find("cudaErrorInvalidDevice"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("runtime.cpp:"), std::string::npos);
  }
  EXPECT_THROW(DeviceMemory(std::size_t{1} << 40), DeviceError);
}

}  // namespace
}  // namespace rehearse::kernels::cuda
