// The files of a result directory: their content, that they are the same on every run, and that they replace
// atomically.
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "sim/base/check.h"
#include "sim/result/output_file.h"
#include "small_result.h"
#include "tests/support/temporary.h"

namespace rehearse::result {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::string gunzip(const fs::path& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  std::string out;
  char block[4096];
  for (int n = 0; (n = gzread(file, block, sizeof block)) > 0;) out.append(block, static_cast<std::size_t>(n));
  EXPECT_EQ(gzclose(file), Z_OK);
  return out;
}

class Directory : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = test::temporary_path("result");
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::vector<std::string> files(const fs::path& dir) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  fs::path dir_;
};

TEST_F(Directory, HoldsTheThreeFilesAndNothingElse) {
  write_directory(small_result(), dir_ / "a" / "b");
  EXPECT_EQ(files(dir_ / "a" / "b"), (std::vector<std::string>{"ops.csv", "result.json", "trace.json.gz"}));
  EXPECT_EQ(read(dir_ / "a" / "b" / "result.json"), to_json(small_result()));
}

TEST_F(Directory, SecondWriteGivesTheSameBytes) {
  write_directory(small_result(), dir_ / "x");
  write_directory(small_result(), dir_ / "y");
  for (const char* name : {"ops.csv", "result.json", "trace.json.gz"})
    EXPECT_EQ(read(dir_ / "x" / name), read(dir_ / "y" / name)) << name;
  const std::string gz = read(dir_ / "x" / "trace.json.gz");
  EXPECT_EQ(gz.substr(4, 4), std::string(4, '\0')) << "the gzip time stamp is 0";
}

TEST_F(Directory, RemovesWhatAnOlderResultHadAndNothingElse) {
  write_directory(small_result(), dir_ / "x",
                  {directory_file("steps.csv", "1\n"), directory_file("servers.csv", "2\n")});
  write_directory(small_result(), dir_ / "x", {directory_file("steps.csv", "3\n")});
  EXPECT_EQ(files(dir_ / "x"), (std::vector<std::string>{"ops.csv", "result.json", "steps.csv", "trace.json.gz"}));
  EXPECT_EQ(read(dir_ / "x" / "steps.csv"), "3\n");
  fs::create_directories(dir_ / "own");
  std::ofstream(dir_ / "own" / "servers.csv") << "mine\n";
  write_directory(small_result(), dir_ / "own");
  EXPECT_EQ(read(dir_ / "own" / "servers.csv"), "mine\n");
}

TEST_F(Directory, OpsCsvHasOneRowAnOp) {
  write_directory(small_result(), dir_);
  EXPECT_EQ(
      read(dir_ / "ops.csv"),
      "id,rank,stage,stream,kind,phase,shape,start_ps,duration_ps,coverage,bytes,flops,"
      "micro_batch,group,group_size,waited_ps,after,waited_for,queued_ps,woken_by,moving_ps,peers\n"
      "\"0/1/0/forward/layer0.\"\"up\"\"\",0,0,compute,gemm,forward,\"m=2, n=4, "
      "k=8\",1000999,2500,exact,96,128,0,,0,0,,,,,,\n"
      "0/1/0/forward/"
      "layer0.reduce,0,0,tensor,all_reduce,forward,elements=64,1003499,1000000,interpolated,128,0,0,tensor,2,400000,,"
      "straggler,0,compute,550000,1\n"
      "0/1/1/optimizer/gather,0,0,data,all_gather,param_gather,elements=64,2003499,1,spec,128,0,-1,data,2,0,forward/"
      "layer0.reduce,,,,,2-14/4\n"
      "\"2/1/0/forward/layer0.\"\"up\"\"\",2,1,compute,gemm,forward,\"m=2, n=4, "
      "k=8\",5000000,1500000,exact,96,128,0,,0,0,,,,,,\n");
}

TEST_F(Directory, TraceIsKinetoJson) {
  write_directory(small_result(), dir_);
  const std::string text = gunzip(dir_ / "trace.json.gz");
  const auto trace = nlohmann::json::parse(text);
  EXPECT_EQ(trace["schemaVersion"], 1);
  EXPECT_EQ(trace["distributedInfo"]["world_size"], 4);
  std::vector<nlohmann::json> slices;
  std::map<std::pair<int, int>, std::string> threads;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") slices.push_back(event);
    if (event["name"] == "thread_name") threads[{event["pid"], event["tid"]}] = event["args"]["name"];
  }
  ASSERT_EQ(slices.size(), 4u);
  EXPECT_EQ(slices[0]["name"], "layer0.\"up\"") << "names are escaped";
  EXPECT_EQ(slices[0]["cat"], "kernel");
  EXPECT_EQ(slices[0]["args"]["shape"], "m=2, n=4, k=8");
  EXPECT_EQ(slices[0]["args"]["micro_batch"], 0);
  EXPECT_EQ(slices[2]["args"]["micro_batch"], -1);
  EXPECT_EQ((threads[{0, slices[0]["tid"]}]), "compute");
  EXPECT_EQ((threads[{0, slices[1]["tid"]}]), "tensor");
  EXPECT_EQ(slices[3]["pid"], 2) << "one process a rank";
  // Both ends cut to the nanosecond: 1000.999 ns to 1003.499 ns is 1000 to 1003, three decimals of a microsecond.
  EXPECT_NE(text.find("\"ts\":1.000,\"dur\":0.003,"), std::string::npos);
  EXPECT_NE(text.find("\"ts\":1.003,\"dur\":1.000,"), std::string::npos) << "starts where the one before it ended";
}

TEST_F(Directory, TraceNamesCollectivesAsKinetoDoes) {
  write_directory(small_result(), dir_);
  const auto trace = nlohmann::json::parse(gunzip(dir_ / "trace.json.gz"));
  std::map<std::string, nlohmann::json> args;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X") args[event["name"]] = event["args"];
  const auto& reduce = args.at("layer0.reduce");
  EXPECT_EQ(reduce["Collective name"], "allreduce");
  EXPECT_EQ(reduce["dtype"], "BFloat16");
  EXPECT_EQ(reduce["In msg nelems"], 64);
  EXPECT_EQ(reduce["Out msg nelems"], 64);
  EXPECT_EQ(reduce["Group size"], 2);
  EXPECT_EQ(reduce["Process Group Name"], "tensor");
  const auto& gather = args.at("gather");
  EXPECT_EQ(gather["Collective name"], "_allgather_base");
  EXPECT_EQ(gather["In msg nelems"], 32) << "a rank puts in its part of the full tensor";
  EXPECT_EQ(gather["Out msg nelems"], 64);
  EXPECT_FALSE(args.at("layer0.\"up\"").contains("Collective name"));
}

TEST_F(Directory, LongTraceStreamsThroughManyBlocks) {
  // 60,000 slices are about 15 MB of JSON: many deflate blocks, one valid document.
  Result r = small_result();
  r.records.clear();
  for (std::int64_t i = 0; i < 60'000; ++i) r.records.push_back({0, 1, 0, 0, 0, i * 2000, 2000});
  write_directory(r, dir_);
  const auto trace = nlohmann::json::parse(gunzip(dir_ / "trace.json.gz"));
  EXPECT_EQ(std::count_if(trace["traceEvents"].begin(), trace["traceEvents"].end(),
                          [](const auto& e) { return e["ph"] == "X"; }),
            60'000);
}

TEST_F(Directory, FileInTheWayIsAnError) {
  std::ofstream(dir_ / "file") << "mine";
  EXPECT_THROW(write_directory(small_result(), dir_ / "file"), std::runtime_error);
  EXPECT_THROW(write_directory(small_result(), dir_ / "file" / "below"), std::runtime_error);
  EXPECT_EQ(read(dir_ / "file"), "mine");
  EXPECT_NE(directory_problem(dir_ / "file"), "");
  EXPECT_NE(directory_problem(dir_ / "file" / "below"), "");
  EXPECT_NE(directory_problem(""), "");
  EXPECT_NE(directory_problem(dir_ / std::string(300, 'x')), "") << "a name longer than file systems take";
  EXPECT_EQ(directory_problem(dir_ / "new" / "deep"), "");
  EXPECT_EQ(directory_problem(dir_.string() + "/"), "");
  EXPECT_FALSE(fs::exists(dir_ / "new")) << "asking makes nothing";
}

TEST_F(Directory, BrokenRecordIsOurOwnErrorAndLeavesNoHalfFile) {
  Result r = small_result();
  r.records.push_back({3, 0, 0, 0, 0, 0, 0});
  EXPECT_THROW(write_directory(r, dir_), InternalError) << "rank 3 has no role";
  EXPECT_TRUE(files(dir_).empty());
}

TEST_F(Directory, AFailureLeavesTheOlderResultWhole) {
  write_directory(small_result(), dir_);
  const std::string ops = read(dir_ / "ops.csv");
  Result broken = small_result();
  broken.records.push_back({3, 0, 0, 0, 0, 0, 0});
  EXPECT_THROW(write_directory(broken, dir_), InternalError);
  EXPECT_EQ(read(dir_ / "ops.csv"), ops);
  EXPECT_EQ(files(dir_).size(), 3u) << "no temporary file stays";
}

TEST_F(Directory, OutputFileReplacesOnlyOnCommit) {
  std::ofstream(dir_ / "f") << "old";
  {
    OutputFile out(dir_ / "f", OutputFile::Format::plain);
    out.write("half");
  }
  EXPECT_EQ(read(dir_ / "f"), "old");
  OutputFile out(dir_ / "f", OutputFile::Format::plain);
  out.write("new");
  out.commit();
  EXPECT_EQ(read(dir_ / "f"), "new");
  EXPECT_EQ(files(dir_).size(), 1u);
}

}  // namespace
}  // namespace rehearse::result
