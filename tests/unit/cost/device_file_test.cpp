// Device files and tables as users write them: a CPU's, added measurements, and what is wrong with bad ones.
#include "sim/cost/device_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "sim/base/diagnostics.h"
#include "tests/support/temporary.h"
#include "tests/unit/cost/ops.h"

namespace rehearse::cost {
namespace {

namespace fs = std::filesystem;

class DeviceFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = rehearse::test::temporary_path("devices");
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  // All problems of a load, a line each, without the folder.
  std::string problems(const std::vector<std::string>& files) const {
    try {
      load_costs(files);
      return "";
    } catch (const InputError& error) {
      std::string all;
      for (const Diagnostic& diagnostic : error.diagnostics()) all += diagnostic.text() + "\n";
      for (std::size_t at; (at = all.find(folder_.string() + "/")) != std::string::npos;)
        all.erase(at, folder_.string().size() + 1);
      return all;
    }
  }

 private:
  fs::path folder_;
};

const std::string kCpu = R"(rehearse_device: 1
name: four-cores
kind: cpu
cores: 4
memory: 16GiB
memory_bandwidth: 20GB/s
kernel_time: 1us
peak: {fp32: 200GFLOPS}
memory_efficiency: {elementwise: 0.5}
gemm:
  constants: {efficiency: 0.5, launch: 1us}
provenance: {host: a machine, compiler: {name: some}}
)";

std::string with(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST_F(DeviceFiles, ACpuIsARooflineOfItsCoresAndSaysItIsFromTheSpecification) {
  const auto costs = load_costs({write("cpu.yaml", kCpu)});
  EXPECT_TRUE(costs->device().cpu);
  EXPECT_EQ(costs->device().sms, 4);
  const test::OneOp product = test::gemm(1000, 1000, 1000, program::DType::f32);
  const Estimate alone = costs->kernel(product.role, product.op, {});
  EXPECT_EQ(alone.duration, Time::from_us(1 + 20000)) << "2 GFLOP at half of 200 GFLOP/s, and a launch";
  EXPECT_EQ(alone.coverage, Coverage::spec);
  EXPECT_EQ(costs->kernel(product.role, product.op, {2, 0}).duration, Time::from_us(1 + 40000))
      << "two of four cores held";
}

TEST_F(DeviceFiles, AProductInATypeTheDeviceHasNoRateForIsAnError) {
  const auto costs = load_costs({write("cpu.yaml", kCpu)});
  const test::OneOp product = test::gemm(8, 8, 8);
  EXPECT_THROW(costs->kernel(product.role, product.op, {}), InputError);
}

TEST_F(DeviceFiles, MeasuredKernelsAreExactWhereMeasuredInterpolatedBetweenAndExtrapolatedBeyond) {
  write("cpu.kernels.csv",
        "# one kind at two sizes\n"
        "kind,dtype,flops,bytes,time_us,source\n"
        "add,bf16,0,6000,10,here\n"
        "add,bf16,0,600000,1000,here\n");
  const auto costs = load_costs({write("cpu.yaml", kCpu + "kernels: {table: cpu.kernels.csv}\n")});
  const auto cost = [&](std::int64_t elements) {
    const test::OneOp one = test::add(elements);
    return costs->kernel(one.role, one.op, {});
  };
  EXPECT_EQ(cost(1000).duration, Time::from_us(10));
  EXPECT_EQ(cost(1000).coverage, Coverage::exact);
  EXPECT_NEAR(cost(10000).duration.seconds(), 100e-6, 1e-11) << "log-log: ten times the size, ten times the time";
  EXPECT_EQ(cost(10000).coverage, Coverage::interpolated);
  EXPECT_NEAR(cost(1000000).duration.seconds(), 9991e-6, 1e-11) << "1 us fixed + 999 us tenfold";
  EXPECT_EQ(cost(1000000).coverage, Coverage::extrapolated);
}

TEST_F(DeviceFiles, LaterFilesReplaceMeasurementsOfEqualShapes) {
  const std::string device = write("cpu.yaml", kCpu);
  write("a.csv", "dtype,m,n,k,tflops,source\nf32,100,100,100,0.1,a\nf32,200,200,200,0.1,a\n");
  write("b.csv", "k,m,n,dtype,tflops,source\n100,100,100,f32,0.2,b\n");
  const std::string a = write("a.yaml", "rehearse_device: 1\nmeasurements_for: four-cores\ngemm: {table: a.csv}\n");
  const std::string b = write("b.yaml", "rehearse_device: 1\nmeasurements_for: four-cores\ngemm: {table: b.csv}\n");
  const auto costs = load_costs({device, a, b});
  const test::OneOp small = test::gemm(100, 100, 100, program::DType::f32);
  const test::OneOp large = test::gemm(200, 200, 200, program::DType::f32);
  EXPECT_EQ(costs->kernel(small.role, small.op, {}).duration, Time::from_us(10));
  EXPECT_EQ(costs->kernel(large.role, large.op, {}).duration, Time::from_us(160));
  EXPECT_EQ(costs->kernel(small.role, small.op, {}).coverage, Coverage::exact);
}

TEST_F(DeviceFiles, MissingKeysWrongUnitsAndUnknownKeysAreReportedTogetherWithPositions) {
  std::string text = with(kCpu, "memory_bandwidth: 20GB/s\n", "memory_bandwidth: 20Gpbs\n");
  text = with(text, "cores: 4\n", "");
  text = with(text, "kernel_time: 1us", "kernel_tine: 1us");
  const std::string found = problems({write("cpu.yaml", text)});
  EXPECT_NE(found.find("cpu.yaml:5:19: error: memory_bandwidth:"), std::string::npos) << found;
  EXPECT_EQ(found.find("at least 1MB/s"), std::string::npos) << "one mistake, one message: " << found;
  EXPECT_NE(found.find("cores"), std::string::npos) << found;
  EXPECT_NE(found.find("cpu.yaml:6:1: error: kernel_tine:"), std::string::npos) << found;
  EXPECT_NE(found.find("did you mean 'kernel_time'?"), std::string::npos) << found;
}

TEST_F(DeviceFiles, MemoryWithoutBandwidthIsRefused) {
  const std::string found = problems({write("cpu.yaml", with(kCpu, "20GB/s", "0GB/s"))});
  EXPECT_NE(found.find("cpu.yaml:6:19: error: memory_bandwidth: 0GB/s is out of range, expected at least 1MB/s"),
            std::string::npos)
      << found;
}

TEST_F(DeviceFiles, BadCellsOfATableAreReportedWithLineAndColumn) {
  write("cpu.gemm.csv",
        "dtype,m,n,k,tflops,source\nf32,100,-5,100,0.1,a\nf23,100,100,100,0.1,a\nf32,1,2\nf32,1,1,1,1e300,a\n");
  const std::string found = problems({write("cpu.yaml", with(kCpu, "gemm:\n", "gemm:\n  table: cpu.gemm.csv\n"))});
  EXPECT_NE(found.find("cpu.gemm.csv:2:9: error: n: '-5' is not a positive whole number"), std::string::npos) << found;
  EXPECT_NE(found.find("cpu.gemm.csv:3:1: error: dtype: 'f23' is not one of f32, bf16, f16"), std::string::npos)
      << found;
  EXPECT_NE(found.find("cpu.gemm.csv:4:1: error: expected 6 fields, found 3"), std::string::npos) << found;
  EXPECT_NE(found.find("cpu.gemm.csv:5:11: error: tflops: '1e300' is not a number from 1e-06 to 100000"),
            std::string::npos)
      << found;
}

TEST_F(DeviceFiles, ATableWithAnUnknownColumnOrNoRateForItsTypeIsAnError) {
  write("cpu.gemm.csv", "dtype,m,n,k,tflop,source\n");
  const std::string device = write("cpu.yaml", with(kCpu, "gemm:\n", "gemm:\n  table: cpu.gemm.csv\n"));
  EXPECT_NE(problems({device}).find("did you mean 'tflops'?"), std::string::npos) << problems({device});
  write("cpu.gemm.csv", "dtype,m,n,k,tflops,source\nbf16,1,1,1,1,a\n");
  EXPECT_NE(problems({device}).find("no peak rate"), std::string::npos) << problems({device});
}

TEST_F(DeviceFiles, MeasurementsOfAnotherDeviceOrAsTheFirstFileAreRefused) {
  const std::string device = write("cpu.yaml", kCpu);
  const std::string other = write("other.yaml", "rehearse_device: 1\nmeasurements_for: eight-cores\n");
  EXPECT_NE(problems({device, other}).find("expected 'four-cores'"), std::string::npos) << problems({device, other});
  EXPECT_NE(problems({other}).find("the first file must be a device"), std::string::npos) << problems({other});
  EXPECT_NE(problems({}).find("no device file"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::cost
