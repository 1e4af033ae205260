// Files that are not what they should be: none may crash, hang or fill memory, and each is refused with a message that
// says what it is. The fuzzing is seeded: the same inputs on every run.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "sim/base/document.h"

namespace rehearse {
namespace {

namespace fs = std::filesystem;

class HostileFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "rehearse-test-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string in_directory(const std::string& name) const { return (directory_ / name).string(); }
  std::string file(const std::string& content) const {
    std::ofstream(in_directory("f.yaml"), std::ios::binary) << content;
    return in_directory("f.yaml");
  }
  // The first complaint about the file, without the file's name.
  std::string complaint(const std::string& path) const {
    Diagnostics diagnostics;
    try {
      const Document document = Document::from_file(path, diagnostics);
      diagnostics.throw_if_any();
    } catch (const InputError& error) {
      Diagnostic first = error.diagnostics().front();
      first.file = first.line > 0 ? "f" : "";
      return first.text();
    }
    return "no complaint";
  }

  fs::path directory_;
};

TEST_F(HostileFileTest, WhatIsNotARegularFileIsNeverRead) {
  EXPECT_EQ(complaint(in_directory("absent")), "error: cannot be read: No such file or directory");
  EXPECT_EQ(complaint(directory_.string()), "error: is a directory, expected a file");
  ASSERT_EQ(::mkfifo(in_directory("pipe").c_str(), 0600), 0);
  EXPECT_EQ(complaint(in_directory("pipe")), "error: is a pipe, expected a file") << "and opening it must not block";
  EXPECT_EQ(complaint("/dev/zero"), "error: is a device, expected a file");
  EXPECT_EQ(complaint(""), "error: cannot be read: No such file or directory");
}

TEST_F(HostileFileTest, WhatIsNotTextIsRefused) {
  EXPECT_EQ(complaint(file("")), "error: is empty, expected 'key: value' lines (YAML)");
  EXPECT_EQ(complaint(file(" \n\t\n")), "error: is empty, expected 'key: value' lines (YAML)");
  EXPECT_EQ(complaint(file(std::string("a: \0b", 5))),
            "error: is a binary file, expected text (a NUL byte at offset 3)");
  EXPECT_EQ(complaint(file("\x7f"
                           "ELF\x80")),
            "error: is a binary file, expected text (no valid UTF-8 at offset 4)");
  EXPECT_EQ(complaint(file("a: \xC0\xAF")), "error: is a binary file, expected text (no valid UTF-8 at offset 3)")
      << "overlong form of '/'";
  EXPECT_EQ(complaint(file("a: caf\xC3\xA9 \xF0\x9F\x9A\x80")), "no complaint");
}

TEST_F(HostileFileTest, OversizedFilesNameTheirSizeAndTheLimit) {
  ASSERT_EQ(::truncate(file("a: 1").c_str(), 1LL << 40), 0);
  EXPECT_EQ(complaint(in_directory("f.yaml")), "error: holds 1099511627776 bytes, the limit is 16777216 (16 MiB)");
}

TEST_F(HostileFileTest, TruncatedYamlIsRefusedWithItsPosition) {
  EXPECT_EQ(complaint(file("plan: {tensor: 4,\n  pipeline: 2")), "f:2:1: error: not YAML: end of map flow not found");
  EXPECT_EQ(complaint(file("name: \"GPT")), "f:1:11: error: not YAML: illegal EOF in scalar");
}

TEST_F(HostileFileTest, DeepNestingIsRefusedWhateverItsForm) {
  const auto repeated = [](const std::string& text, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += text;
    return out;
  };
  const std::string deep = "nested more than 100 levels deep";
  const auto mib16 = static_cast<std::size_t>(kMaxFileBytes);
  EXPECT_EQ(complaint(file(std::string(mib16, '['))), "f:1:101: error: " + deep);
  EXPECT_EQ(complaint(file(std::string(mib16, '{'))), "f:1:101: error: " + deep);
  EXPECT_NE(complaint(file(repeated("[\"]\",", 1000) + repeated("]", 1000))).find(deep), std::string::npos)
      << "brackets hidden in quotes";
  EXPECT_NE(complaint(file(repeated("- ", 100000) + "1")).find(deep), std::string::npos);
  EXPECT_EQ(complaint(file(repeated("[", 100) + repeated("]", 100))), "no complaint") << "100 levels are allowed";
  std::string stairs;
  for (int level = 0; level < 200; ++level) stairs += repeated(" ", level) + "a:\n";
  EXPECT_NE(complaint(file(stairs)).find("f:101:"), std::string::npos);
}

TEST_F(HostileFileTest, ManyValuesAreRefusedBeforeTheyFillMemory) {
  const auto mib16 = static_cast<std::size_t>(kMaxFileBytes);
  std::string commas = "[" + std::string(mib16 - 2, ',') + "]";
  EXPECT_NE(complaint(file(commas)).find("holds more than 1000000 values"), std::string::npos);
  std::string dashes;
  while (dashes.size() + 2 <= mib16) dashes += "-\n";
  EXPECT_NE(complaint(file(dashes)).find("holds more than 1000000 values"), std::string::npos);
}

TEST_F(HostileFileTest, AnchorsAliasesTagsAndSecondDocumentsAreRefused) {
  EXPECT_EQ(complaint(file("a: &x [1]\nb: *x\n")),
            "f:1:4: error: a: anchors ('&name') are not supported (write the value out where it is needed)");
  EXPECT_EQ(complaint(file("a: !!python/object 1\n")),
            "f:1:4: error: a: tags ('tag:yaml.org,2002:python/object') are not supported");
  EXPECT_EQ(complaint(file("a: 1\n---\nb: 2\n")), "f:2:1: error: a second document begins here, expected one document");
  EXPECT_EQ(complaint(file("[a, b]: 1\n")), "f:1:1: error: expected a key that is text (or a bracket is not closed)");
}

TEST_F(HostileFileTest, MessagesShowControlCharactersEscapedAndLongWordsCut) {
  Diagnostics diagnostics;
  const Document document =
      Document::from_text("f", "a: \"\\e[31m\"\nb: " + std::string(1000, 'x') + "\n", diagnostics);
  document.root().integer("b");
  document.root().choice("a", {"red"});
  EXPECT_EQ(diagnostics.list().at(0).message,
            "expected an integer (digits only), found '" + std::string(60, 'x') + "...'");
  EXPECT_EQ(diagnostics.list().at(1).message, "expected one of red, found '\\x1b[31m'");
}

// Any damage to a real scenario is either still readable or an InputError: no crash, no other exception.
TEST_F(HostileFileTest, DamagedScenariosNeverCrash) {
  const std::string scenario =
      "rehearse: 1\nname: \"GPT-3 \\u00e9\" # c\nmodel: {family: gpt, layers: 96, tied: true}\nplan:\n  tensor: 8\n"
      "  layers_per_stage: [12, 12]\n  bucket: 25MiB\n  note: |\n    text\n  other: >-\n    folded\n"
      "training: {betas: [0.9, 0.95], eps: 1e-8, 'q': 'it''s'}\nlist:\n- a: 1\n  b: 2\n- - x\n  - ? k\n    : v\n";
  const std::string spice = "[]{},:#&*!|>'\"%@`?- \n\t\\ab0\x01\xFF\xC3";
  std::mt19937 random(1);
  int readable = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = scenario.substr(0, round % 3 == 0 ? random() % scenario.size() : std::string::npos);
    for (std::uint32_t edits = random() % 8; edits > 0 && !text.empty(); --edits) {
      const std::size_t at = random() % text.size();
      const char c = spice[random() % spice.size()];
      switch (random() % 3) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, random() % 4 + 1, c);
          break;
        default:
          text.erase(at, random() % 4 + 1);
      }
    }
    Diagnostics diagnostics;
    try {
      const Document document = Document::from_text("f", text, diagnostics);
      document.root().get("plan").integer("tensor", 1);
      document.root().get("plan").finish();
      ++readable;
    } catch (const InputError& error) {
      EXPECT_FALSE(error.diagnostics().empty());
    }
  }
  EXPECT_GT(readable, 1000) << "the damage is so heavy that nothing behind the parser is reached";
}

}  // namespace
}  // namespace rehearse
