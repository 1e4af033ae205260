// What ranks must agree on: how a difference is told, and what changes a fingerprint.
#include "execute/processes/identity.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary.h"

namespace rehearse::execute {
namespace {

TEST(Identities, PackedAndUnpackedAreTheSame) {
  const Identity identity{{"training.lr", "0.01"}, {"empty", ""}, {"data", "two\nlines"}};
  EXPECT_EQ(unpack_identity(pack(identity)), identity);
  EXPECT_EQ(unpack_identity(""), Identity{});
}

TEST(Identities, OfOneKindDoNotDiffer) {
  const Identity a{{"training.lr", "0.01"}};
  EXPECT_EQ(difference_text(std::vector<Identity>{a, a, a}), "");
}

TEST(Identities, TheOneThatIsNotAsTheOthersIsNamed) {
  const Identity most{{"model.layers", "4"}, {"training.lr", "0.01"}, {"training.seed", "1"}},
      other{{"model.layers", "4"}, {"training.lr", "0.02"}, {"training.seed", "2"}};
  EXPECT_EQ(difference_text(std::vector<Identity>{most, other, most}),
            "rank 1 was not started as the others\n"
            "  training.lr: 0.01 on ranks 0 and 2, 0.02 on rank 1\n"
            "  training.seed: 1 on ranks 0 and 2, 2 on rank 1");
  EXPECT_EQ(difference_text(std::vector<Identity>{other, most, most}).substr(0, 36),
            "rank 0 was not started as the others");
}

TEST(Identities, OfTwoNeitherIsRight) {
  EXPECT_EQ(difference_text(std::vector<Identity>{{{"data", "a"}}, {{"data", "b"}}}),
            "ranks 0 and 1 were not started alike\n  data: a on rank 0, b on rank 1");
}

TEST(Identities, LinesAreNoLongerThanATerminal) {
  const std::string text = difference_text(std::vector<Identity>{{{"data", "35149 bytes, " + std::string(32, 'a')}},
                                                                 {{"data", "35150 bytes, " + std::string(32, 'b')}}});
  EXPECT_EQ(text, "ranks 0 and 1 were not started alike\n  data:\n    35149 bytes, " + std::string(32, 'a') +
                      " on rank 0\n    35150 bytes, " + std::string(32, 'b') + " on rank 1");
}

TEST(Identities, APartThatOneDoesNotHaveDiffers) {
  EXPECT_EQ(difference_text(std::vector<Identity>{{{"image", "3"}}, {}}),
            "ranks 0 and 1 were not started alike\n  image: 3 on rank 0, not known on rank 1");
}

TEST(Identities, WhatFollowsFromOthersIsToldOnlyAlone) {
  const auto with = [](const char* lr, const char* program) {
    return Identity{{"training.lr", lr}, {kProgramPart, program}};
  };
  EXPECT_EQ(difference_text(std::vector<Identity>{with("1", "x"), with("2", "y")}).find("lowered"), std::string::npos);
  EXPECT_NE(difference_text(std::vector<Identity>{with("1", "x"), with("1", "y")}).find("lowered"), std::string::npos);
}

TEST(Fingerprints, OfFilesAreOfAllTheirBytes) {
  const std::string file = test::temporary_path("data");
  const auto of = [&](const std::string& content) {
    std::ofstream(file, std::ios::binary) << content;
    return fingerprint_of_file(file);
  };
  std::string large(3'000'000, 'a');
  const std::string first = of(large);
  EXPECT_EQ(first.rfind("3000000 bytes, ", 0), 0u) << first;
  EXPECT_EQ(of(large), first);
  large.back() = 'b';
  EXPECT_NE(of(large), first);
  EXPECT_EQ(of("").rfind("0 bytes, ", 0), 0u);
  std::filesystem::remove(file);
  EXPECT_EQ(fingerprint_of_file(file), "cannot be read: No such file or directory");
}

program::Elementwise elementwise(std::int64_t elements) {
  program::Elementwise e;
  e.elements = elements;
  return e;
}

TEST(Fingerprints, OfProgramsAreOfWhatTheyDo) {
  program::Program p;
  program::Role role;
  role.buffers.resize(1);
  role.buffers[0].shape = {4};
  program::Op op;
  op.name = "add";
  op.shape = elementwise(4);
  op.reads = {{0, 0}};
  role.bodies = {{"forward", {op}}};
  role.slots = {{0, 0}};
  p.roles = {role};
  const std::string first = fingerprint_of(p);
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(fingerprint_of(p), first);
  const auto changed = [&](auto change) {
    program::Program other = p;
    change(other);
    return fingerprint_of(other);
  };
  EXPECT_NE(changed([](auto& o) { o.micro_batches = 2; }), first);
  EXPECT_NE(changed([](auto& o) { o.roles[0].buffers[0].shape = {8}; }), first);
  EXPECT_NE(changed([](auto& o) { o.roles[0].bodies[0].ops[0].stream = 1; }), first);
  EXPECT_NE(changed([](auto& o) { o.roles[0].bodies[0].ops[0].shape = elementwise(8); }), first);
  EXPECT_NE(changed([](auto& o) { o.roles[0].slots.push_back({0, 1}); }), first);
}

}  // namespace
}  // namespace rehearse::execute
