// Reading calibrations: every field, what is refused and in which words, and which one "local" finds.
#include "sim/cost/calibration_file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "sim/base/diagnostics.h"
#include "sim/cost/cost.h"
#include "tests/support/calibration.h"
#include "tests/support/temporary.h"

namespace rehearse::cost {
namespace {

namespace fs = std::filesystem;
using rehearse::test::CalibrationText;
using rehearse::test::TemporaryFile;

CalibrationText small() {
  CalibrationText c;
  c.kernels = {{"gemm", "m=4 n=5 k=6 transpose_b", 2e-6, 240, 296, 1, 2, "program"}};
  c.transfers = {{"all_reduce", 2, 4096, 3e-5}, {"send", 2, 1024, 1e-5, "gloo"}};
  c.sharing = R"({"class": "memory", "beside": "transfer", "slowdown": 1.25})";
  c.dispatch_s = 4e-7, c.wake_s = 1e-5;
  return c;
}

std::vector<Diagnostic> problems(const std::string& text) {
  const TemporaryFile file("problems.json", text);
  try {
    read_calibration(file.path());
  } catch (const InputError& e) {
    return e.diagnostics();
  }
  return {};
}

TEST(ReadCalibration, KeepsEveryField) {
  const TemporaryFile file("fields.json", small().text());
  const Calibration c = read_calibration(file.path());
  EXPECT_EQ(c.host.name, "tester");
  EXPECT_EQ(c.host.cores, 2);
  EXPECT_EQ(c.host.memory_bytes, 8'000'000'000);
  EXPECT_EQ(c.made.version, "0.1.0");
  EXPECT_DOUBLE_EQ(c.peak_flops, 1.1e11);
  ASSERT_EQ(c.kernels.size(), 1u);
  EXPECT_EQ(c.kernels[0].shape, "m=4 n=5 k=6 transpose_b");
  EXPECT_EQ(c.kernels[0].dtype, program::DType::f32);
  EXPECT_EQ(c.kernels[0].busy, 2);
  EXPECT_EQ(c.kernels[0].origin, Origin::program);
  EXPECT_DOUBLE_EQ(c.kernels[0].time.p90, 2.4e-6);
  ASSERT_EQ(c.transfers.size(), 2u);
  EXPECT_EQ(c.transfers[0].kind, program::CollectiveKind::all_reduce);
  EXPECT_FALSE(c.transfers[0].send);
  EXPECT_TRUE(c.transfers[1].send);
  EXPECT_EQ(c.transfers[1].transport, Transport::gloo);
  EXPECT_DOUBLE_EQ(c.slowdown[1][2], 1.25);
  EXPECT_DOUBLE_EQ(c.slowdown[0][0], 1.0);
  EXPECT_DOUBLE_EQ(c.wake_s, 1e-5);
}

TEST(ReadCalibration, SaysThatASchemaIsNotThisVersions) {
  CalibrationText c = small();
  c.schema = "rehearse.calibration/0";
  const auto found = problems(c.text());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].message.find("'rehearse.calibration/0'"), std::string::npos);
  EXPECT_NE(found[0].hint.find("rehearse calibrate"), std::string::npos);
  EXPECT_EQ(found[0].line, 2);
}

TEST(ReadCalibration, SaysThatAFileIsNoCalibration) {
  const auto result = problems(R"({"schema": "rehearse.result/1"})");
  ASSERT_EQ(result.size(), 1u);
  EXPECT_NE(result[0].message.find("no calibration"), std::string::npos);
  CalibrationText c = small();
  c.kind = "cuda";
  const auto kind = problems(c.text());
  ASSERT_EQ(kind.size(), 1u);
  EXPECT_NE(kind[0].message.find("kind 'cpu'"), std::string::npos);
  EXPECT_FALSE(problems("").empty());
  EXPECT_FALSE(problems("[1, 2]").empty());
}

TEST(ReadCalibration, NamesTheCommandForABrokenFile) {
  const std::string whole = small().text();
  const auto found = problems(whole.substr(0, whole.size() / 2));
  ASSERT_FALSE(found.empty());
  EXPECT_NE(found.back().hint.find("rehearse calibrate"), std::string::npos);
}

TEST(ReadCalibration, ReportsAllThatIsWrongWithItsPlace) {
  CalibrationText c = small();
  c.kernels[0].busy = 3;  // of 2 cores
  c.kernels[0].seconds = 0;
  c.transfers[0].kind = "all_reduc";
  c.more = ",\n \"wak_s\": 1";
  const auto found = problems(c.text());
  std::string all;
  for (const Diagnostic& d : found) {
    EXPECT_GT(d.line, 1);
    all += d.text() + "\n";
  }
  EXPECT_NE(all.find("kernels[0].busy: 3 is out of range"), std::string::npos) << all;
  EXPECT_NE(all.find("kernels[0].p50_s: expected more than 0"), std::string::npos) << all;
  EXPECT_NE(all.find("did you mean 'all_reduce'?"), std::string::npos) << all;
  EXPECT_NE(all.find("wak_s: unknown key (did you mean 'wake_s'?"), std::string::npos) << all;
}

// As many kernels as a long calibration has are read in a moment: no part of reading grows faster than the file.
TEST(ReadCalibration, ReadsThousandsOfKernels) {
  CalibrationText c = small();
  for (int i = 1; i <= 5000; ++i) c.kernels.push_back({"gemm", fmt::format("m={} n=8 k=8", i), 1e-6, 128.0 * i, 100.0});
  const TemporaryFile file("long.json", c.text());
  EXPECT_EQ(read_calibration(file.path()).kernels.size(), 5001u);
}

// "local" looks in the user's cache, here an empty folder of the test's own.
class LocalCalibration : public testing::Test {
 protected:
  LocalCalibration() : folder_(rehearse::test::temporary_path("cache")) {
    if (const char* before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
    fs::create_directories(folder_ / "rehearse");
  }
  ~LocalCalibration() override {
    if (before_.empty())
      ::unsetenv("XDG_CACHE_HOME");
    else
      ::setenv("XDG_CACHE_HOME", before_.c_str(), 1);
    fs::remove_all(folder_);
  }
  static void keep(const CalibrationText& c) { std::ofstream(default_calibration_path()) << c.text(); }
  static CalibrationText of_this_host() {
    const HostFacts here = host_fingerprint();
    CalibrationText c = small();
    c.name = here.name, c.cpu = here.cpu, c.isa = here.isa, c.cores = std::max(2, here.cores);
    return c;
  }
  static std::string refusal() {
    try {
      find_device_file("local", REHEARSE_SOURCE_DIR);
    } catch (const InputError& e) {
      return e.diagnostics().front().text();
    }
    return "";
  }

 private:
  fs::path folder_;
  std::string before_;
};

TEST_F(LocalCalibration, IsTheOneOfThisHost) {
  if (host_fingerprint().cores < 2) GTEST_SKIP() << "one core: the calibration of the test has two";
  keep(of_this_host());
  EXPECT_EQ(find_device_file("local", REHEARSE_SOURCE_DIR), default_calibration_path());
}

TEST_F(LocalCalibration, IsNeededAndNamesTheCommand) {
  const std::string said = refusal();
  EXPECT_NE(said.find("there is none"), std::string::npos) << said;
  EXPECT_NE(said.find("`rehearse calibrate`"), std::string::npos) << said;
}

TEST_F(LocalCalibration, OfAnotherMachineIsRecognised) {
  CalibrationText c = of_this_host();
  c.cpu = "Another CPU";
  keep(c);
  const std::string said = refusal();
  EXPECT_NE(said.find("Another CPU"), std::string::npos) << said;
  EXPECT_NE(said.find("`rehearse calibrate`"), std::string::npos) << said;
}

TEST_F(LocalCalibration, OfAnOlderSchemaIsRecognised) {
  CalibrationText c = of_this_host();
  c.schema = "rehearse.calibration/0";
  keep(c);
  const std::string said = refusal();
  EXPECT_NE(said.find("rehearse.calibration/0"), std::string::npos) << said;
  EXPECT_NE(said.find("`rehearse calibrate`"), std::string::npos) << said;
}

}  // namespace
}  // namespace rehearse::cost
