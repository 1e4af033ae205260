// Files of checkpoints that have a part of what is kept: what changed, what they are based on, and the whole that parts
// are put together to.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "execute/checkpoint/asked_now.h"
#include "execute/checkpoint/changed_blocks.h"
#include "execute/checkpoint/folder.h"
#include "execute/checkpoint/whole_state.h"
#include "execute/processes/local_world.h"
#include "sim/base/diagnostics.h"
#include "sim/base/unfinished.h"

namespace rehearse::execute {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;
using Spans = std::vector<StateSpan>;

StatePayload payload_of(const Bytes& bytes) {
  return [&bytes](std::int64_t offset, std::int64_t) { return bytes.data() + offset; };
}

Bytes counted_bytes(std::size_t bytes, int first = 0) {
  Bytes all(bytes);
  for (std::size_t i = 0; i < bytes; ++i) all[i] = static_cast<std::byte>((first + static_cast<int>(i * 7)) % 251);
  return all;
}

// Of one buffer after another.
StateHeader header_of_buffers(const std::vector<std::int64_t>& bytes) {
  StateHeader header;
  for (const std::int64_t b : bytes) {
    header.buffers.push_back({"buffer" + std::to_string(header.buffers.size()), DType::u8, b, header.payload_bytes});
    header.payload_bytes += b;
  }
  return header;
}

TEST(ChangedBlocks, AreThoseOfWhichAByteIsAnother) {
  const StateHeader header = header_of_buffers({2500, 10, 5000});  // blocks at 0 1024 2048 | 2500 | 2510 3534 ...
  Bytes bytes = counted_bytes(7510);
  ChangedBlocks changed;
  EXPECT_EQ(changed.take(header, payload_of(bytes)), (Spans{{0, 7510}})) << "the first time all";
  EXPECT_EQ(changed.take(header, payload_of(bytes)), Spans{});
  bytes[1030] ^= std::byte{1};
  bytes[2509] ^= std::byte{1};
  bytes[7509] ^= std::byte{1};
  EXPECT_EQ(changed.take(header, payload_of(bytes)), (Spans{{1024, 1024}, {2500, 10}, {6606, 904}}));
  EXPECT_EQ(changed.take(header, payload_of(bytes)), Spans{});
  bytes[0] ^= std::byte{1};
  bytes[1024] ^= std::byte{1};
  EXPECT_EQ(changed.take(header, payload_of(bytes)), (Spans{{0, 2048}})) << "neighbours are one";
}

// Three checkpoints of 3000 bytes, each of which has a part that is not as it was.
struct Chain {
  Chain() {
    for (const std::int64_t step : {1, 2, 3}) fs::create_directories(of(step));
    StateHeader header = header_of_buffers({3000});
    const auto write = [&](std::int64_t step) {
      header.step = step;
      write_state_file(of(step) + "/" + name, header, payload_of(now));
      facts = state_file_facts(of(step), name);
      header.base = StateBase{step, facts.bytes, facts.digest};
    };
    write(1);
    std::fill_n(now.begin() + 100, 50, std::byte{1});
    header.stored = {{{100, 50}}};
    write(2);
    std::fill_n(now.begin() + 140, 20, std::byte{2});
    std::fill_n(now.begin() + 2990, 10, std::byte{3});
    header.stored = {{{140, 20}, {2990, 10}}};
    write(3);
  }
  std::string of(std::int64_t step) const { return checkpoint_path(folder.path(), step); }

  const TemporaryFolder folder;
  const std::string name = state_file_name(0);
  Bytes now = counted_bytes(3000);
  StateFileFacts facts;  // of the last
};

TEST(StateFiles, AreReadThroughWhatTheyAreBasedOn) {
  const Chain chain;
  const StateFile file(chain.of(3), chain.facts);
  ASSERT_NE(file.base(), nullptr);
  ASSERT_NE(file.base()->base(), nullptr);
  EXPECT_EQ(file.base()->base()->base(), nullptr);
  EXPECT_EQ(file.header().stored_bytes(), 30);
  for (const auto& [offset, bytes] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 3000}, {0, 100}, {99, 2}, {139, 22}, {145, 1}, {149, 2}, {160, 2830}, {2989, 11}, {2999, 1}, {500, 0}}) {
    Bytes read(static_cast<std::size_t>(bytes));
    file.read(offset, bytes, read.data());
    EXPECT_TRUE(std::equal(read.begin(), read.end(), chain.now.begin() + offset)) << offset << " " << bytes;
  }
}

// However many are based on one another.
TEST(StateFiles, LeaveNoneOpen) {
  const auto open_files = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = open_files();
  const Chain chain;
  const StateFile file(chain.of(3), chain.facts);
  Bytes read(3000);
  // Room for one file more: of a chain one is open at a time.
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int last = ::open("/dev/null", O_RDONLY);
  ASSERT_GE(last, 0);
  ::close(last);
  const rlimit few{static_cast<rlim_t>(last + 1), limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_NO_THROW(file.read(0, 3000, read.data()));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(read, chain.now);
  EXPECT_EQ(open_files(), before);
}

std::string refusal(const Chain& chain) {
  try {
    const StateFile file(chain.of(3), chain.facts);
    return "read";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(StateFiles, ABaseThatIsNotWhatItWasIsRefusedByName) {
  const auto expect = [](const Chain& chain, const std::string& path, const char* why) {
    const std::string text = refusal(chain);
    EXPECT_NE(text.find(path), std::string::npos) << text;
    EXPECT_NE(text.find(why), std::string::npos) << text;
  };
  const Chain gone, cut, torn, other;
  EXPECT_EQ(refusal(other), "read");
  fs::remove(gone.of(1) + "/" + gone.name);
  expect(gone, gone.of(1) + "/" + gone.name, "no such file");
  expect(gone, gone.of(2) + "/" + gone.name, "names");
  fs::resize_file(cut.of(2) + "/" + cut.name, 40);
  expect(cut, cut.of(2) + "/" + cut.name, "is cut");
  std::fstream(torn.of(1) + "/" + torn.name, std::ios::in | std::ios::out | std::ios::binary).seekp(-40, std::ios::end)
      << "torn";
  expect(torn, torn.of(1) + "/" + torn.name, "its checksum is not that of its content");
  StateHeader header = header_of_buffers({3000});
  header.step = 1;
  const Bytes others = counted_bytes(3000, 5);
  write_state_file(other.of(1) + "/" + other.name, header, payload_of(others));
  expect(other, other.of(1) + "/" + other.name, "is of another checkpoint: not the file that");
}

// Two holders of a matrix of 6, by rows, and of a vector that both have.
std::vector<RankState> two_holders(std::int64_t first_of_second = 3) {
  std::vector<RankState> holders;
  for (const int rank : {0, 1}) {
    StateHeader header = header_of_buffers({20, 8});
    header.rank = rank, header.ranks = 2;
    const std::int64_t first = rank == 0 ? 0 : first_of_second;
    header.tensors = {{"w", "param", DType::f32, 6, {{first, 3, 8}}},
                      {"w", "master", DType::f32, 6, {{first, 3, 8}}},  // said twice: the same bytes
                      {"b", "param", DType::f32, 2, {{0, 2, 0}}},
                      {"w", "exp_avg", DType::f16, 6, {{first, 3, 20}}}};
    holders.emplace_back(std::move(header));
  }
  return holders;
}

TEST(WholeState, EachHolderWritesWhatNoneBeforeItHas) {
  const WholeState whole(two_holders());
  const std::vector<RankState> holders = two_holders();
  EXPECT_EQ(*whole.part_of(holders[0].header()).stored, (Spans{{0, 26}}));
  EXPECT_EQ(*whole.part_of(holders[1].header()).stored, (Spans{{8, 18}}));
}

TEST(WholeState, IsPutTogetherOfParts) {
  const TemporaryFolder folder;
  const WholeState whole(two_holders());
  const std::string checkpoint = checkpoint_path(folder.path(), 4);
  fs::create_directories(checkpoint);
  std::vector<Bytes> kept;
  for (const RankState& holder : two_holders()) {
    StateHeader part = whole.part_of(holder.header());
    part.step = 4;
    kept.push_back(counted_bytes(28, 100 * part.rank));
    write_state_file(checkpoint + "/" + part_file_name(part.rank), part, payload_of(kept.back()));
  }
  whole.put_together(checkpoint, 4);
  EXPECT_FALSE(fs::exists(checkpoint + "/" + part_file_name(0)));
  const StateFile file(checkpoint, state_file_facts(checkpoint, kWholeFile));
  const StateHeader& header = file.header();
  EXPECT_EQ(header.step, 4);
  ASSERT_EQ(header.tensors.size(), 3U) << "the copy that is said twice is no tensor of its own";
  EXPECT_EQ(header.payload_bytes, 12 + 8 + 24);
  const auto expect = [&](std::size_t tensor, const char* kind, const char* name, const Bytes& expected) {
    const StateTensor& t = header.tensors[tensor];
    EXPECT_EQ(t.kind, kind);
    EXPECT_EQ(t.name, name);
    Bytes read(expected.size());
    file.read(t.runs.at(0).offset, static_cast<std::int64_t>(read.size()), read.data());
    EXPECT_EQ(read, expected) << kind << " " << name;
  };
  const auto joined = [&](std::size_t from, std::size_t bytes) {
    Bytes all(kept[0].begin() + static_cast<std::ptrdiff_t>(from),
              kept[0].begin() + static_cast<std::ptrdiff_t>(from + bytes));
    all.insert(all.end(), kept[1].begin() + static_cast<std::ptrdiff_t>(from),
               kept[1].begin() + static_cast<std::ptrdiff_t>(from + bytes));
    return all;
  };
  expect(0, "exp_avg", "w", joined(20, 6));
  expect(1, "param", "b", Bytes(kept[0].begin(), kept[0].begin() + 8));
  expect(2, "param", "w", joined(8, 12));
}

TEST(WholeState, WhatAllHoldersTogetherHaveNotIsRefused) {
  try {
    const WholeState whole(two_holders(2));
    FAIL() << "elements 5 and on are nobody's";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("of 'exp_avg' of 'w' no rank has all"), std::string::npos) << error.what();
  }
}

void write_checkpoint(const std::string& folder, std::int64_t step, const std::set<std::int64_t>& bases) {
  fs::create_directories(checkpoint_path(folder, step));
  Manifest m;
  m.step = step, m.steps = 9, m.data = "none";
  m.losses.of_steps.assign(static_cast<std::size_t>(step), 1.0);
  m.files = {{state_file_name(0), 1, "0"}};
  m.kind = CheckpointKind::incremental;
  m.bases = bases;
  write_manifest(checkpoint_path(folder, step), m);
}

TEST(CheckpointFolder, KeepsWhatTheLastAreBasedOn) {
  const TemporaryFolder folder;
  write_checkpoint(folder.path(), 1, {});
  write_checkpoint(folder.path(), 2, {1});
  write_checkpoint(folder.path(), 3, {});
  write_checkpoint(folder.path(), 4, {3});
  write_checkpoint(folder.path(), 5, {3, 4});
  EXPECT_EQ(read_manifest(checkpoint_path(folder.path(), 5)).bases, (std::set<std::int64_t>{3, 4}));
  keep_last_checkpoints(folder.path(), 4);
  EXPECT_EQ(checkpoints_in(folder.path()), (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  keep_last_checkpoints(folder.path(), 1);
  EXPECT_EQ(checkpoints_in(folder.path()), (std::vector<std::int64_t>{3, 4, 5}));
  std::ofstream(checkpoint_path(folder.path(), 5) + "/manifest.json") << "torn";
  keep_last_checkpoints(folder.path(), 1);
  EXPECT_EQ(checkpoints_in(folder.path()), (std::vector<std::int64_t>{3, 4, 5})) << "it may be based on any of them";
}

TEST(AskedNow, HoldsForTheEndOfTheNextStepOfTheRoot) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/" + kNowFile;
  const auto world = make_local_world(2, std::chrono::milliseconds(1000));
  AskedNow asked(*world, file, 5, 10);
  EXPECT_FALSE(asked.after(6));
  std::ofstream{file};
  EXPECT_FALSE(asked.after(6)) << "by a slower rank: what was said stays";
  EXPECT_TRUE(fs::exists(file));
  EXPECT_FALSE(asked.after(7));
  EXPECT_FALSE(fs::exists(file)) << "seen, for the end of step 8";
  EXPECT_FALSE(asked.known_after(7));
  EXPECT_TRUE(asked.known_after(8));
  EXPECT_TRUE(asked.after(8));
  EXPECT_TRUE(asked.after(8)) << "by every rank";
  EXPECT_FALSE(asked.after(9));
  std::ofstream{file};
  EXPECT_FALSE(asked.after(10)) << "after the last step there is one anyway";
}

}  // namespace
}  // namespace rehearse::execute
