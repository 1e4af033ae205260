// Reading a document: values and positions, strict keys, all problems in one pass, and assignments from the command
// line.
#include "sim/base/document.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace rehearse {
namespace {

std::vector<std::string> texts(const Diagnostics& diagnostics) {
  std::vector<std::string> out;
  for (const Diagnostic& diagnostic : diagnostics.list()) out.push_back(diagnostic.text());
  return out;
}

using Texts = std::vector<std::string>;

class DocumentTest : public testing::Test {
 protected:
  Document parse(const std::string& text) { return Document::from_text("f.yaml", text, diagnostics_); }
  Diagnostics diagnostics_;
};

TEST_F(DocumentTest, ReadsEveryKindOfValue) {
  const Document document = parse(
      "name: GPT-3\nplan: {tensor: 8, rate: 3e-4, on: true, zero: two}\nbucket: 25MiB\nlink: 400Gbps\n"
      "latency: 5 us\npeak: 312TFLOPS\nlist: [1, 2, 3]\nempty:\n");
  const Node root = document.root();
  EXPECT_EQ(root.text("name"), "GPT-3");
  const Node plan = root.get("plan");
  EXPECT_EQ(plan.integer("tensor"), 8);
  EXPECT_DOUBLE_EQ(plan.number("rate"), 3e-4);
  EXPECT_TRUE(plan.boolean("on"));
  EXPECT_EQ(plan.choice("zero", {"one", "two"}), 1);
  EXPECT_EQ(root.bytes("bucket"), Bytes(25 << 20));
  EXPECT_EQ(root.bandwidth("link"), Bandwidth(50'000'000'000));
  EXPECT_EQ(root.time("latency"), Time::from_us(5));
  EXPECT_EQ(root.flop_rate("peak"), FlopRate(312e12));
  ASSERT_EQ(root.get("list").size(), 3U);
  EXPECT_EQ(root.get("list").at(2).as_integer(), 3);
  EXPECT_EQ(root.get("list").at(2).path(), "list[2]");
  EXPECT_EQ(root.get("empty").kind(), Node::Kind::null);
  EXPECT_EQ(root.get("absent").kind(), Node::Kind::missing);
  plan.finish();
  root.finish();
  EXPECT_EQ(texts(diagnostics_), Texts{});
}

// As if it had been parsed again: the same values and places, and nobody has asked for a key.
TEST_F(DocumentTest, AFileThatIsReadManyTimesIsReadOnce) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "read-many-times.yaml";
  std::ofstream(path) << "name: one\nlist: [{a: 1}, 'x']\nother: 2\n";
  ParsedFiles files;
  for (const char* later : {"name: two\n", "name: three\n"}) {
    Diagnostics problems;
    Document document = Document::from_file(path.string(), problems, &files);
    document.set("name=set");
    const Node root = document.root();
    EXPECT_EQ(root.text("name"), "set");
    EXPECT_EQ(root.get("list").at(0).integer("a"), 1);
    EXPECT_EQ(root.get("list").at(1).as_text(), "x");
    EXPECT_EQ(root.get("list").line(), 2);
    root.finish();
    ASSERT_EQ(problems.list().size(), 1U) << "nobody asked for `other`";
    EXPECT_EQ(problems.list().front().line, 3);
    std::ofstream(path) << later;
  }
  Diagnostics problems;
  EXPECT_EQ(Document::from_file(path.string(), problems, &files).root().text("name"), "one") << "not what was set";
  EXPECT_EQ(Document::from_file(path.string(), problems, nullptr).root().text("name"), "three");
  std::filesystem::remove(path);
}

// What it was parsed to is kept with its text.
TEST_F(DocumentTest, AFileIsAsItIsNow) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "as-it-is-now.yaml";
  for (const char* text : {"name: one\nother: 2\n", "name: one\nother: 2\n", "name: two\n", "name: one\nother: 3\n"}) {
    std::ofstream(path) << text;
    Diagnostics problems, as_text;
    const Node root = Document::from_file(path.string(), problems).root();
    const Node plain = Document::from_text(path.string(), text, as_text).root();
    EXPECT_EQ(root.keys(), plain.keys());
    EXPECT_EQ(root.text("name"), plain.text("name")) << text;
    root.finish();
    plain.finish();
    EXPECT_EQ(texts(problems), texts(as_text)) << "nobody asked for `other`, each time";
  }
  std::filesystem::remove(path);
}

TEST_F(DocumentTest, AFileWithAProblemReportsItEachTime) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "read-with-a-problem.yaml";
  std::ofstream(path) << "name: one\nname: two\n";
  ParsedFiles files;
  for (int time = 0; time < 2; ++time) {
    Diagnostics problems;
    (void)Document::from_file(path.string(), problems, &files);
    EXPECT_EQ(problems.list().size(), 1U);
  }
  std::filesystem::remove(path);
}

TEST_F(DocumentTest, AbsentKeysTakeTheirDefaults) {
  const Document document = parse("a: 1\n");
  const Node plan = document.root().get("plan");
  EXPECT_EQ(plan.integer("tensor", 1, 1), 1);
  EXPECT_EQ(plan.text("schedule", "1f1b"), "1f1b");
  EXPECT_EQ(plan.bytes("bucket", Bytes(5)), Bytes(5));
  EXPECT_TRUE(plan.boolean("overlap", true));
  EXPECT_EQ(texts(diagnostics_), Texts{});
}

// All problems are found in one pass, each at its own position, and the values read are harmless ones.
TEST_F(DocumentTest, ReportsEveryWrongValueAndGoesOn) {
  const Document document = parse(
      "plan:\n  tensor: 4.0\n  pipeline: 1e3\n  context: 4GiB\n  zero: 7\n  expert: 99999999999999999999\n"
      "  overlap: yes\n  chunks: '2'\n  bucket: 25\n  micro: [1]\n  zero_group:\n");
  const Node plan = document.root().get("plan");
  EXPECT_EQ(plan.integer("tensor", {}, 1), 1);
  EXPECT_EQ(plan.integer("pipeline", 2), 2);
  plan.integer("context");
  plan.integer("zero", 0, 0, 3);
  plan.integer("expert");
  EXPECT_FALSE(plan.boolean("overlap", false));
  plan.integer("chunks");
  plan.bytes("bucket");
  plan.integer("micro");
  plan.text("zero_group");
  plan.integer("global_batch");
  EXPECT_EQ(texts(diagnostics_),
            (Texts{"f.yaml:2:11: error: plan.tensor: expected an integer (digits only), found '4.0'",
                   "f.yaml:3:13: error: plan.pipeline: expected an integer (digits only), found '1e3'",
                   "f.yaml:4:12: error: plan.context: expected an integer (digits only), found '4GiB'",
                   "f.yaml:5:9: error: plan.zero: 7 is out of range, expected 0 to 3",
                   "f.yaml:6:11: error: plan.expert: '99999999999999999999' does not fit in 64 bits",
                   "f.yaml:7:12: error: plan.overlap: expected true or false, found 'yes'",
                   "f.yaml:8:11: error: plan.chunks: expected an integer (digits only), found the text '2' (remove the "
                   "quotes)",
                   "f.yaml:9:11: error: plan.bucket: a size needs its unit, found the bare number '25' (e.g. 'bucket: "
                   "25MiB')",
                   "f.yaml:10:10: error: plan.micro: expected an integer, found a list",
                   "f.yaml:11:3: error: plan.zero_group: expected text, found nothing",
                   "f.yaml:2:3: error: plan.global_batch: required key is missing, expected an integer"}));
}

TEST_F(DocumentTest, NumbersMustBeFiniteDecimals) {
  const Document document = parse("a: .inf\nb: 1e999\nc: nan\nd: 0x10\ne: -0.5\nf: +2\n");
  const Node root = document.root();
  for (const char* key : {"a", "b", "c", "d"}) root.number(key);
  EXPECT_EQ(diagnostics_.list().size(), 4U);
  EXPECT_DOUBLE_EQ(root.number("e"), -0.5);
  EXPECT_DOUBLE_EQ(root.number("f"), 2);
  root.number("e", {}, 0, 1);
  EXPECT_EQ(diagnostics_.list().back().message, "-0.5 is out of range, expected 0 to 1");
}

TEST_F(DocumentTest, UnknownKeysNameTheNearestKnownOne) {
  const Document document = parse("tensr: 4\nwholly_other: 5\ntensor: 1\n");
  document.root().integer("tensor");
  document.root().finish();
  EXPECT_EQ(texts(diagnostics_), (Texts{"f.yaml:1:1: error: tensr: unknown key (did you mean 'tensor'?)",
                                        "f.yaml:2:1: error: wholly_other: unknown key (known keys: tensor)"}));
}

TEST_F(DocumentTest, ChoicesNameAllAndTheNearest) {
  const Document document = parse("schedule: 1f1B\n");
  document.root().choice("schedule", {"gpipe", "1f1b"});
  EXPECT_EQ(texts(diagnostics_),
            Texts{"f.yaml:1:11: error: schedule: expected one of gpipe, 1f1b, found '1f1B' (did you mean '1f1b'?)"});
}

TEST_F(DocumentTest, DuplicateKeysAreReportedWithBothPositions) {
  const Document document = parse("plan:\n  tensor: 4\n  tensor: {a: 8}\nplan: 3\n");
  EXPECT_EQ(document.root().get("plan").integer("tensor"), 4) << "the first one holds";
  EXPECT_EQ(texts(diagnostics_),
            (Texts{"f.yaml:3:3: error: plan.tensor: duplicate key, first given at line 2, column 3",
                   "f.yaml:4:1: error: plan: duplicate key, first given at line 1, column 1"}));
}

TEST_F(DocumentTest, AScalarWhereAMappingBelongsIsReportedOnce) {
  const Document document = parse("plan: 4\n");
  const Node plan = document.root().get("plan");
  EXPECT_EQ(plan.integer("tensor", {}, 1), 1);
  plan.integer("pipeline");
  plan.finish();
  EXPECT_EQ(texts(diagnostics_), Texts{"f.yaml:1:7: error: plan: expected a mapping ('key: value'), found '4'"});
}

TEST_F(DocumentTest, KeysKeepFileOrderAndQuotedTextStaysText) {
  const Document document = parse("zebra: '12'\nant: \"a\\nb\"\n");
  EXPECT_EQ(document.root().keys(), (Texts{"zebra", "ant"}));
  EXPECT_EQ(document.root().get("zebra").as_integer(), std::nullopt);
  EXPECT_EQ(document.root().text("ant"), "a\nb");
}

TEST_F(DocumentTest, AssignmentsOverrideAndCreate) {
  Document document = parse("plan: {tensor: 2}\nempty:\n");
  document.set("plan.tensor=4");
  document.set("training.betas=[0.9, 0.95]");
  document.set("empty.deep.key='a=b'");
  const Node root = document.root();
  EXPECT_EQ(root.get("plan").integer("tensor"), 4);
  EXPECT_EQ(root.get("training").get("betas").at(1).as_number(), 0.95);
  EXPECT_EQ(root.get("empty").get("deep").text("key"), "a=b");
  EXPECT_EQ(texts(diagnostics_), Texts{});
}

TEST_F(DocumentTest, ProblemsOfAssignedValuesNameTheCommandLine) {
  Document document = parse("plan: {tensor: 2}\nmodel: gpt2\n");
  document.set("plan.tensor=four");
  document.set("plan.tensr=4");
  document.set("plan.tensor");
  document.set("=4");
  document.set("plan..tensor=4");
  document.set("model.dropout=0.1");
  document.set("plan.pipeline=[1, 2");
  document.root().get("plan").integer("tensor");
  document.root().get("plan").finish();
  EXPECT_EQ(texts(diagnostics_),
            (Texts{"--set: error: 'plan.tensor' has no '=', expected KEY.PATH=VALUE (e.g. plan.tensor=4)",
                   "--set: error: '=4' has an empty key, expected KEY.PATH=VALUE",
                   "--set: error: 'plan..tensor=4' has an empty key, expected KEY.PATH=VALUE",
                   "--set: error: model.dropout: 'model' is 'gpt2', not a mapping with keys",
                   "--set: error: plan.pipeline: expected a key that is text (or a bracket is not closed)",
                   "--set: error: plan.tensor: expected an integer (digits only), found 'four'",
                   "--set: error: plan.tensr: unknown key (did you mean 'tensor'?)"}));
}

}  // namespace
}  // namespace rehearse
