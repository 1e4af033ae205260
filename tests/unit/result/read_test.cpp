// Result directories read back: all that was written comes back, and what is not one of ours is refused with file, line
// and what was expected.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "sim/base/diagnostics.h"
#include "sim/result/read_directory.h"
#include "small_result.h"
#include "tests/support/temporary.h"

namespace rehearse::result {
namespace {

namespace fs = std::filesystem;

class ReadDirectory : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = test::temporary_path("read");
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  fs::path dir_;
};

// The messages of what reading throws, one a line; "" if it reads.
template <typename Function>
std::string problems(Function&& read) {
  try {
    read();
  } catch (const InputError& error) {
    std::string text;
    for (const Diagnostic& d : error.diagnostics()) text += d.text() + "\n";
    return text;
  }
  return "";
}

std::string json_problems(const std::string& text) {
  return problems([&] { parse_result_json("r.json", text); });
}

std::string csv_problems(const std::string& text) {
  return problems([&] {
    StoredResult stored;
    parse_ops_csv("ops.csv", text, stored);
  });
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

constexpr char kHeading[] = "id,rank,stage,stream,kind,phase,shape,start_ps,duration_ps,coverage,bytes,flops\n";

TEST_F(ReadDirectory, WhatWasWrittenComesBack) {
  Result written = small_result();
  written.loss_parts = {{"model", {2, 1.75}}, {"mtp1", {5, 4.5}}};
  write_directory(written, dir_);
  const StoredResult stored = read_directory(dir_);
  const Result& r = stored.result;
  EXPECT_EQ(to_json(r), to_json(written)) << "to the picosecond, and every other key";
  EXPECT_EQ(r.step_time_ps, 2'000'000'000'001);
  EXPECT_EQ(r.breakdown_ps, written.breakdown_ps);
  ASSERT_EQ(stored.ops.size(), 4u);
  const OpRow& first = stored.ops[0];
  EXPECT_EQ(id_of(stored, first), "0/1/0/forward/layer0.\"up\"");
  EXPECT_EQ(first.start_ps, 1'000'999);
  EXPECT_EQ(first.duration_ps, 2'500);
  EXPECT_EQ(first.micro_batch, 0);
  const OpText& gemm = stored.text_of(first);
  EXPECT_EQ(gemm.shape, "m=2, n=4, k=8") << "a field with commas";
  EXPECT_EQ(gemm.kind, "gemm");
  EXPECT_EQ(gemm.flops, 128);
  const OpText& reduce = stored.text_of(stored.ops[1]);
  EXPECT_EQ(reduce.group, "tensor");
  EXPECT_EQ(reduce.group_size, 2);
  EXPECT_EQ(stored.ops[1].waited_ps, 400'000);
  EXPECT_EQ(stored.ops[1].waited_for, Share::straggler);
  EXPECT_EQ(stored.ops[0].waited_for, Share::other);
  EXPECT_EQ(stored.ops[1].queued_ps, 0);
  EXPECT_EQ(stored.ops[1].moving_ps, 550'000);
  EXPECT_EQ(stored.streams, std::vector<std::string>{"compute"});
  EXPECT_EQ(stored.ops[1].woken_by, 0);
  EXPECT_EQ(stored.ops[0].queued_ps, -1) << "not known";
  EXPECT_EQ(stored.ops[0].moving_ps, -1);
  EXPECT_EQ(stored.ops[0].woken_by, -1);
  EXPECT_EQ(reduce.peers, "1");
  EXPECT_EQ(stored.text_of(stored.ops[2]).peers, "2-14/4");
  EXPECT_EQ(stored.text_of(stored.ops[2]).after, std::vector<std::string>{"forward/layer0.reduce"});
  EXPECT_EQ(stored.ops[2].micro_batch, -1);
  EXPECT_EQ(stored.ops[3].rank, 2);
  EXPECT_EQ(stored.text_of(stored.ops[3]).stage, 1);
}

Result with_answers() {
  Result r = small_result();
  r.links.known = true;
  r.links.used = 32, r.links.bytes = 64'000;
  r.links.busiest = {{"node0/\"nic\"0-out",
                      "nic",
                      31,
                      25'000'000'000,
                      2'001,
                      {{"data all_reduce", 2'000}, {"send", 1}},
                      5,
                      1,
                      7,
                      2,
                      4,
                      1'500}};
  r.samples = {20, 7, {1, 2, 3}, 1, 4, 2, {}};
  for (std::size_t i = 0; i < r.samples.breakdown_ps.size(); ++i) {
    const auto n = static_cast<std::int64_t>(i);
    r.samples.breakdown_ps[i] = {n, n + 1, n + 2};
  }
  r.noise.known = true;
  r.noise.seed = 3, r.noise.sample = 7, r.noise.without_ps = 1'900'000'000'001;
  r.noise.causes = {{"slow_rank", 3, 1.2, "", 0, 1'800'000'000'000},
                    {"slow_ranks", -1, 1, "", 2, 1'700'000'000'000},
                    {"links", -1, 1, "node0/nic*", 8, 2'000'000'000'001},
                    {"kernels", -1, 1, "", 0, 2'100'000'000'000}};
  r.what_if = {{"compute", 3'000'000'000'001, 1'500'000'000'001},
               {"latency", 1, 2, "Doubled, it makes the step 1 ps shorter: \"another\" order."}};
  CollectiveUse use;
  use.kind = "all_reduce", use.group = "data", use.ranks = 16, use.nodes = 2, use.bytes = 1 << 30;
  use.algorithm = "nvls_tree", use.protocol = "simple", use.pinned = true, use.channels = 16, use.fidelity = "flow";
  use.coverage = "extrapolated", use.low = 0.75, use.high = 1.45;
  use.count = 3, use.alone_ps = 1'000'000'000'001, use.mean_ps = 1'000'000'000'003;
  r.collectives = {use, {}};
  r.energy = {true, 200, 1'000, 90, 10, 1'000, 1'500, 700, 400, 0.9375};
  r.jobs = {{"own", 8, 0, 3, 2'000'000'000'001, 1, 5, 1'000'000'000'001, 1.5}, {"other", 4, 7, 1, 4, 4, 4, 4, 1.0}};
  return r;
}

TEST_F(ReadDirectory, AnswersComeBack) {
  const Result written = with_answers();
  write_directory(written, dir_);
  const Result r = read_directory(dir_).result;
  EXPECT_EQ(to_json(r), to_json(written));
  EXPECT_EQ(r.links.busiest.at(0).users.at(1).bytes, 1);
  EXPECT_EQ(r.links.busiest.at(0).window_ps, 4);
  EXPECT_EQ(r.samples.breakdown_ps[3].p95, 5);
  EXPECT_EQ(r.noise.causes.at(2).resources, "node0/nic*");
  EXPECT_EQ(r.what_if.at(0).doubled_ps, 1'500'000'000'001);
  EXPECT_EQ(r.what_if.at(1).why, written.what_if.at(1).why);
  ASSERT_EQ(r.collectives.size(), 2u);
  EXPECT_EQ(r.collectives[0].protocol, "simple");
  EXPECT_TRUE(r.collectives[0].pinned);
  EXPECT_EQ(r.collectives[0].mean_ps, 1'000'000'000'003);
  EXPECT_EQ(r.collectives[0].high, 1.45);
  ASSERT_EQ(r.jobs.size(), 2u);
  EXPECT_EQ(r.jobs[0].step_ps, 2'000'000'000'001);
  EXPECT_EQ(r.energy.joules(), 1'300);
  EXPECT_EQ(r.energy.high_j, 1'500);
  EXPECT_EQ(r.energy.clock, 0.9375);
  EXPECT_EQ(r.jobs[1].start_ps, 7);
  EXPECT_EQ(r.jobs[1].name, "other");
}

TEST(ReadResultJson, AnswersOfAnotherTypeAreNamed) {
  const std::string whole = to_json(with_answers());
  EXPECT_NE(json_problems(replaced(whole, "\"alike\": 31", "\"alike\": \"31\"")).find("links.busiest[0].alike"),
            std::string::npos);
  EXPECT_NE(json_problems(replaced(whole, "\"what\": \"latency\"", "\"what\": 7")).find("what_if[1].what"),
            std::string::npos);
  EXPECT_NE(json_problems(replaced(whole, "\"reported\": 7,", "")).find("samples.reported"), std::string::npos);
  EXPECT_NE(json_problems(replaced(whole, "\"clock\": 0.9375,", "")).find("energy.clock"), std::string::npos);
}

TEST_F(ReadDirectory, TextsAreKeptOnce) {
  Result many = small_result();
  many.records.clear();
  for (std::int32_t i = 0; i < 1000; ++i) many.records.push_back({0, 1, i, 0, i % 2, i * 10, 5});
  write_directory(many, dir_);
  const StoredResult stored = read_directory(dir_);
  EXPECT_EQ(stored.ops.size(), 1000u);
  EXPECT_EQ(stored.texts.size(), 2u);
}

TEST_F(ReadDirectory, WhatIsNoResultDirectoryIsRefused) {
  EXPECT_NE(problems([&] { read_directory(dir_ / "none"); }).find("no such directory"), std::string::npos);
  EXPECT_NE(problems([&] { read_directory(dir_); }).find("result.json: error: no such file"), std::string::npos);
  write_directory(small_result(), dir_);
  fs::remove(dir_ / "ops.csv");
  EXPECT_NE(problems([&] { read_directory(dir_); }).find("ops.csv: error: no such file"), std::string::npos);
  fs::create_directory(dir_ / "ops.csv");
  EXPECT_NE(problems([&] { read_directory(dir_); }).find("is no regular file"), std::string::npos);
  EXPECT_NE(problems([&] { read_directory(dir_ / "result.json"); }).find("is no directory"), std::string::npos);
}

TEST(ReadResultJson, BrokenJsonIsNamedWithItsLine) {
  const std::string whole = to_json(small_result());
  EXPECT_EQ(json_problems(whole), "");
  EXPECT_EQ(
      json_problems("{\n  \"schema\": \"rehearse.result/1\",\n  oops\n}\n").rfind("r.json:3:3: error: this is", 0), 0u);
  EXPECT_NE(json_problems(whole.substr(0, whole.size() / 2)).find("not JSON"), std::string::npos);
  EXPECT_NE(json_problems("").find("r.json:1:1: error: this is not JSON"), std::string::npos);
}

TEST(ReadResultJson, AnotherSchemaIsRefused) {
  EXPECT_EQ(json_problems("[]"), json_problems("{}"));
  EXPECT_NE(json_problems("{}").find("schema: expected \"rehearse.result/1\", found none"), std::string::npos);
  EXPECT_NE(json_problems("{\"schema\": \"rehearse.ledger/1\"}").find("found \"rehearse.ledger/1\""),
            std::string::npos);
}

TEST(ReadResultJson, EveryWrongKeyIsNamedAtOnce) {
  std::string text = replaced(to_json(small_result()), "\"ranks\": 4", "\"ranks\": \"four\"");
  text = replaced(text, "\"fits\": true", "\"fits\": 1");
  text = replaced(text, "\"bubble\"", "\"bubbles\"");
  const std::string found = json_problems(text);
  EXPECT_NE(found.find("r.json:10:1: error: ranks: expected an integer, found string"), std::string::npos) << found;
  EXPECT_NE(found.find("memory.fits: expected true or false, found number"), std::string::npos) << found;
  EXPECT_NE(found.find("breakdown_s.bubble: is missing"), std::string::npos) << found;
}

// What only results with section data have.
TEST(ReadResultJson, LoadingEpochsAndLearningRates) {
  EXPECT_EQ(to_json(small_result()).find("exposed_input"), std::string::npos);
  Result r = small_result();
  r.input = {true, 8, 16, 20'000'000'000, 80'000'000'000, "workers"};
  r.epoch = {50'000, false, 1563, 1562, 90};
  r.learning_rate = {256, 0.1, 1024};
  r.breakdown_ps[static_cast<std::size_t>(Share::exposed_input)] = 7;
  const std::string text = to_json(r);
  for (const char* part : {"\"exposed_input\": 0.000000000007", "\"micro_batch_s\": 0.02", "\"steps\": 1563",
                           "\"square_root_factor\": 2.0", "\"linear_lr\": 0.4", "\"all_epochs_s\": "})
    EXPECT_NE(text.find(part), std::string::npos) << part << text;
  const Result read = parse_result_json("r.json", text);
  EXPECT_EQ(read.breakdown_ps, r.breakdown_ps);
  EXPECT_EQ(read.epoch.epochs, 90);
  EXPECT_EQ(to_json(read), text);
  EXPECT_NE(json_problems(replaced(text, "\"base_batch\": 256", "\"base_batch\": 0"))
                .find("learning_rate.base_batch: expected at least 1, found 0"),
            std::string::npos);
}

// What only results with local steps have.
TEST(ReadResultJson, LocalSteps) {
  EXPECT_EQ(to_json(small_result()).find("\"local_steps\": {"), std::string::npos);
  Result r = small_result();
  r.local_steps = local_steps(4, 2, 10'000'000'000, 4'000'000'000);
  r.local_steps.outer = "nesterov";
  EXPECT_EQ(r.local_steps.inner_ps, 2'000'000'000) << "three inner steps";
  EXPECT_EQ(recorded_step_ps(r), 4'000'000'000);
  EXPECT_EQ(local_steps(1, 2, 7, 7).inner_ps, 0) << "there is none";
  const std::string text = to_json(r);
  for (const char* part : {"\"round_time_s\": 0.01", "\"inner_step_time_s\": 0.002", "\"outer_step_time_s\": 0.004",
                           "\"workers\": 2", "\"outer_optimizer\": \"nesterov\""})
    EXPECT_NE(text.find(part), std::string::npos) << part << text;
  const Result read = parse_result_json("r.json", text);
  EXPECT_EQ(read.local_steps.round_ps, r.local_steps.round_ps);
  EXPECT_EQ(to_json(read), text);
  EXPECT_NE(json_problems(replaced(text, "\"workers\": 2", "\"workers\": 0"))
                .find("local_steps.workers: expected at least 1, found 0"),
            std::string::npos);
}

// What only results with parameter servers have.
TEST(ReadResultJson, ParameterServers) {
  EXPECT_EQ(to_json(small_result()).find("\"parameter_servers\": {"), std::string::npos);
  Result r = small_result();
  ParameterServers& p = r.servers;
  p.known = true, p.servers = 2, p.workers = 3, p.consistency = "bounded", p.bound = 4;
  p.updates = 100, p.dropped = 1, p.window_ps = 5'000'000'000, p.updates_per_s = 20, p.samples_per_s = 640;
  p.staleness = {0, 3, 97}, p.mean_staleness = 1.97, p.most_ahead = 2, p.iterations_per_s = {6, 7, 7};
  p.parameter_bytes = 40, p.gradient_bytes = 80, p.fullest_server_bytes = 24, p.server_memory_bytes = 48;
  p.bound_by = "server 1", p.busy = 0.5;
  const std::string text = to_json(r);
  for (const char* part : {"\"staleness_bound\": 4", "\"window_s\": 0.005", "\"bound_by\": \"server 1\""})
    EXPECT_NE(text.find(part), std::string::npos) << part << text;
  const Result read = parse_result_json("r.json", text);
  EXPECT_EQ(read.servers.staleness, p.staleness);
  EXPECT_EQ(read.servers.iterations_per_s, p.iterations_per_s);
  EXPECT_EQ(to_json(read), text);
  EXPECT_NE(json_problems(replaced(text, "\"servers\": 2", "\"servers\": 0"))
                .find("parameter_servers.servers: expected at least 1, found 0"),
            std::string::npos);
  EXPECT_NE(json_problems(replaced(text, "\"mean_staleness\": 1.97", "\"mean_staleness\": \"x\""))
                .find("parameter_servers.mean_staleness: expected a number, found string"),
            std::string::npos);
}

// What only results with something in the memory of hosts have.
TEST(ReadResultJson, MemoryOfHosts) {
  EXPECT_EQ(to_json(small_result()).find("\"host\": {\"node_bytes\""), std::string::npos);
  Result r = small_result();
  ASSERT_FALSE(r.stages.empty());
  r.stages.front().host = 40;
  r.host_bytes = 80, r.host_capacity = 70;
  EXPECT_FALSE(r.host_fits());
  const std::string text = to_json(r);
  const Result read = parse_result_json("r.json", text);
  EXPECT_EQ(read.stages.front().host, 40);
  EXPECT_EQ(read.host_bytes, 80);
  EXPECT_EQ(read.host_capacity, 70);
  EXPECT_EQ(to_json(read), text);
  r.host_capacity = 0;
  EXPECT_TRUE(r.host_fits()) << "how much there is is not known";
}

// Files of before there was a share `straggler`; and of a run that does not know it.
TEST(ReadResultJson, SharesThatAreMissingOrNotKnown) {
  const std::string whole = to_json(small_result());
  const Result older = parse_result_json("r.json", replaced(whole, "    \"straggler\": 0.0,\n", ""));
  EXPECT_EQ(older.breakdown_ps, small_result().breakdown_ps);
  EXPECT_TRUE(older.late_ranks_known);

  Result unknown = small_result();
  unknown.late_ranks_known = false;
  unknown.breakdown_ps[static_cast<std::size_t>(Share::bubble)] = 0;
  const std::string text = to_json(unknown);
  EXPECT_NE(text.find("\"straggler\": null,\n    \"bubble\": null,"), std::string::npos) << text;
  const Result read = parse_result_json("r.json", text);
  EXPECT_FALSE(read.late_ranks_known);
  EXPECT_EQ(read.breakdown_ps, unknown.breakdown_ps);
  EXPECT_EQ(to_json(read), text);
  EXPECT_NE(json_problems(replaced(whole, "\"host\": 0.0", "\"host\": null")), "") << "of nothing else";
}

// Numbers that are JSON but fit no type of ours reach the user as a place in the file, not as a check that broke.
TEST(ReadResultJson, NumbersThatFitNothingAreNamedWithTheirPlace) {
  const std::string whole = to_json(small_result());
  const auto with = [&](const std::string& key, const std::string& value) {
    const std::size_t at = whole.find('"' + key + "\": ");
    EXPECT_NE(at, std::string::npos) << key;
    const std::size_t from = at + key.size() + 4;
    return json_problems(std::string(whole).replace(from, whole.find_first_of(",\n", from) - from, value));
  };
  EXPECT_EQ(with("ranks", "4"), "");
  EXPECT_EQ(with("tokens_per_s", "1e400"),
            "r.json:" +
                std::to_string(
                    1 + std::count(whole.begin(),
                                   whole.begin() + static_cast<std::ptrdiff_t>(whole.find("\"tokens_per_s\"")), '\n')) +
                ":19: error: expected a number that fits 64 bits, found 1e400 (the file was cut off or edited)\n");
  EXPECT_NE(with("ranks", "18446744073709551615").find("ranks: expected an integer below 2^63"), std::string::npos);
  EXPECT_NE(with("ranks", "1e30").find("ranks: expected an integer, found number"), std::string::npos);
  EXPECT_NE(with("step_time_s", "1e29").find("step_time_s: expected less than 100 days"), std::string::npos);
  for (const char* interval : {"[1.0, 1e29]", "[-1.0, 1.0]", "[2.0, 1.0]", "[1.0]", "[1.0, \"2\"]"}) {
    const std::size_t at = whole.find("\"interval_s\": ") + 14;
    const std::string text = std::string(whole).replace(at, whole.find(']', at) + 1 - at, interval);
    EXPECT_NE(json_problems(text).find("interval_s: expected two numbers of seconds, low and high"), std::string::npos)
        << interval;
  }
}

TEST(ReadOps, HugeNumbersAreNamedWithTheirLines) {
  const auto row = [](const char* start, const char* duration, const char* bytes, const char* flops,
                      const char* micro_batch) {
    return csv_problems(replaced(kHeading, "flops", "flops,micro_batch") +
                        "0/1/2/forward/a,0,0,compute,gemm,forward,m=1," + start + "," + duration + ",," + bytes + "," +
                        flops + "," + micro_batch + "\n");
  };
  EXPECT_EQ(row("5", "7", "96", "128", "0"), "");
  EXPECT_EQ(row("9000000000000000000", "0", "1", "1e30", "1073741824"), "");
  EXPECT_NE(row("9223372036854775807", "7", "96", "128", "0").find("ops.csv:2:46: error: start_ps: expected a number"),
            std::string::npos);
  EXPECT_NE(row("99999999999999999999", "7", "96", "128", "0").find("start_ps: expected a number"), std::string::npos);
  EXPECT_NE(row("9000000000000000000", "1", "96", "128", "0").find("end after 9000000000000000000 ps"),
            std::string::npos);
  EXPECT_NE(row("5", "7", "9223372036854775807", "128", "0").find("bytes: expected"), std::string::npos);
  for (const char* flops : {"inf", "nan", "1e308", "-1"})
    EXPECT_NE(row("5", "7", "96", flops, "0").find("flops: expected"), std::string::npos) << flops;
  EXPECT_NE(row("5", "7", "96", "128", "2147483647").find("micro_batch: expected"), std::string::npos);
}

TEST(ReadOps, DurationsThatNoSumHoldsAreRefused) {
  const std::string half = "0,0,compute,gemm,forward,m=1,0,5000000000000000000,,96,128\n";
  EXPECT_EQ(csv_problems(kHeading + ("0/1/2/forward/a," + half)), "");
  EXPECT_NE(csv_problems(kHeading + ("0/1/2/forward/a," + half) + "0/1/2/forward/b," + half)
                .find("ops.csv:3:48: error: duration_ps: with this row the durations add up to more than"),
            std::string::npos);
}

TEST_F(ReadDirectory, TextThatASpreadsheetWouldRunComesBack) {
  Result r = small_result();
  for (auto& [role, bodies] : r.names)
    for (auto& body : bodies)
      for (OpName& name : body) name.shape = "=HYPERLINK(\"x\")", name.group = "-group";
  write_directory(r, dir_);
  std::ifstream in(dir_ / "ops.csv");
  const std::string written((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(written.find(",=HYPERLINK"), std::string::npos) << written;
  EXPECT_EQ(written.find(",\"=HYPERLINK"), std::string::npos) << written;
  EXPECT_EQ(written.find(",-group"), std::string::npos) << written;
  const StoredResult stored = read_directory(dir_);
  EXPECT_EQ(stored.text_of(stored.ops[0]).shape, "=HYPERLINK(\"x\")");
  EXPECT_EQ(stored.text_of(stored.ops[0]).group, "-group");
}

TEST(ReadOps, OlderFilesWithoutTheLastColumnsAreRead) {
  StoredResult stored;
  parse_ops_csv("ops.csv", std::string(kHeading) + "0/1/2/forward/a,0,0,compute,gemm,forward,m=1,5,7,,96,128\r\n",
                stored);
  ASSERT_EQ(stored.ops.size(), 1u);
  EXPECT_EQ(stored.ops[0].slot, 2);
  EXPECT_EQ(stored.ops[0].duration_ps, 7);
  EXPECT_EQ(stored.ops[0].micro_batch, -1);
  EXPECT_EQ(stored.texts[0].group, "");
}

TEST(ReadOps, BadRowsAreNamedWithTheirLines) {
  const std::string good = "0/1/2/forward/a,0,0,compute,gemm,forward,m=1,5,7,,96,128\n";
  const std::string found =
      csv_problems(kHeading + good + "0/1/2/forward/b,0,0,compute,gemm,forward,m=1,5,x,,96,128\n" + "short,row\n" +
                   "0/1/forward/c,0,0,compute,gemm,forward,m=1,5,7,,96,128\n" +
                   "1/1/2/forward/a,0,0,compute,gemm,forward,m=1,5,-7,,96,128\n" + good);
  EXPECT_NE(found.find("ops.csv:3:48: error: duration_ps: expected a number from 0 to 9000000000000000000, found 'x'"),
            std::string::npos)
      << found;
  EXPECT_NE(found.find("ops.csv:4:1: error: expected 12 fields, found 2"), std::string::npos) << found;
  EXPECT_NE(found.find("ops.csv:5:1: error: id: expected rank/step/slot/body/op, found '0/1/forward/c'"),
            std::string::npos)
      << found;
  EXPECT_NE(found.find("ops.csv:6:17: error: rank: found 0, but the id says 1"), std::string::npos) << found;
  EXPECT_NE(found.find("ops.csv:6:48: error: duration_ps: expected a number from 0 to 9000000000000000000, found '-7'"),
            std::string::npos)
      << found;
  EXPECT_NE(found.find("ops.csv:7:1: error: id: '0/1/2/forward/a' is there twice"), std::string::npos) << found;
}

TEST(ReadOps, AWrongHeadingIsNamed) {
  EXPECT_NE(csv_problems("").find("ops.csv:1:1: error: expected a row that names the columns"), std::string::npos);
  const std::string found = csv_problems(replaced(kHeading, "duration_ps", "durations_ps"));
  EXPECT_EQ(found, "ops.csv:1:1: error: there is no column 'duration_ps' (did you mean 'durations_ps'?)\n");
  EXPECT_NE(csv_problems(std::string(kHeading) + "\"0/1/2").find("ops.csv:2:1: error: a quoted field that never ends"),
            std::string::npos);
}

TEST(ReadOps, AFileOfNothingButProblemsIsNotReadToItsEnd) {
  std::string text = kHeading;
  for (int i = 0; i < 1000; ++i) text += "x\n";
  const std::string found = csv_problems(text);
  EXPECT_EQ(std::count(found.begin(), found.end(), '\n'), 20);
}

TEST(ReadResult, NotesComeBack) {
  Result r = small_result();
  EXPECT_EQ(to_json(r).find("\"notes\""), std::string::npos) << "only where there are any";
  r.notes = {{"uneven_stages", "Stages are \"uneven\"."}};
  const Result again = parse_result_json("result.json", to_json(r));
  ASSERT_EQ(again.notes.size(), 1u);
  EXPECT_EQ(again.notes[0].what, "uneven_stages");
  EXPECT_EQ(again.notes[0].text, "Stages are \"uneven\".");
  EXPECT_EQ(to_json(again), to_json(r));
}

TEST(ReadResult, LoadsOfExpertsComeBack) {
  Result r = small_result();
  EXPECT_EQ(to_json(r).find("\"experts\""), std::string::npos) << "only where they are uneven";
  r.experts = {true, 1.75, 1.5, 3, 0.125};
  const Result again = parse_result_json("result.json", to_json(r));
  EXPECT_TRUE(again.experts.known);
  EXPECT_EQ(again.experts.imbalance, 1.75);
  EXPECT_EQ(again.experts.mean_imbalance, 1.5);
  EXPECT_EQ(again.experts.worst_layer, 3);
  EXPECT_EQ(again.experts.dropped, 0.125);
  EXPECT_EQ(to_json(again), to_json(r));
}

// A run may diverge, and of steps before an old checkpoint a part's loss is not known.
TEST(ReadResult, LossesThatAreNoNumbersComeBack) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  Result r = small_result();
  r.loss = {2.5, none};
  r.loss_parts = {{"model", {none, 2}}, {"mtp1", {none, 3}}};
  const std::string text = to_json(r);
  EXPECT_NE(text.find("null"), std::string::npos);
  const Result again = parse_result_json("result.json", text);
  ASSERT_EQ(again.loss.size(), 2U);
  EXPECT_EQ(again.loss[0], 2.5);
  EXPECT_TRUE(std::isnan(again.loss[1]));
  ASSERT_EQ(again.loss_parts.size(), 2U);
  EXPECT_TRUE(std::isnan(again.loss_parts[1].of_steps.at(0)));
  EXPECT_EQ(again.loss_parts[1].of_steps.at(1), 3);
  EXPECT_EQ(to_json(again), text);
  EXPECT_NE(json_problems(replaced(text, "null", "\"none\"")), "");
}

TEST(ReadResult, ThePaceComesBack) {
  Result r = small_result();
  EXPECT_EQ(to_json(r).find("\"pace\""), std::string::npos) << "only where it is known";
  r.pace = {.probes = 3,
            .product_s = 0.012,
            .copy_s = 0.007,
            .spread = 0.03,
            .taken = 0.4,
            .stolen = 0.02,
            .cores = 2,
            .wanted = 1};
  const Result again = parse_result_json("result.json", to_json(r));
  EXPECT_EQ(again.pace.probes, 3);
  EXPECT_EQ(again.pace.taken, 0.4);
  EXPECT_EQ(again.pace.waited, -1);
  EXPECT_EQ(to_json(again), to_json(r));
}

}  // namespace
}  // namespace rehearse::result
