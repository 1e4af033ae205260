// A Chakra execution trace as rehearse compare reads it: messages encoded here by protobuf's wire format, with the
// fields that Chakra's converter of PyTorch traces writes.
#include "calibrate/trace/chakra_trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "calibrate/trace/trace_operators.h"
#include "sim/base/diagnostics.h"
#include "tests/support/temporary.h"

namespace rehearse::calibrate::trace {
namespace {

std::string varint_of(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string number_field(int field, std::uint64_t value) {
  return varint_of(static_cast<std::uint64_t>(field) << 3) + varint_of(value);
}
std::string bytes_field(int field, const std::string& value) {
  return varint_of(static_cast<std::uint64_t>(field) << 3 | 2) + varint_of(value.size()) + value;
}
std::string attribute_of(const std::string& name, int field, std::uint64_t value) {
  return bytes_field(10, bytes_field(1, name) + number_field(field, value));
}
std::string framed(const std::string& message) {
  return varint_of(message.size()) + message;
}

std::string host_node(int id, const std::string& name, const std::string& shapes, const std::string& types) {
  return framed(number_field(1, static_cast<std::uint64_t>(id)) + bytes_field(2, name) + number_field(3, 4) +
                bytes_field(8, bytes_field(1, "[1, 2]") + bytes_field(2, shapes) + bytes_field(3, types)) +
                attribute_of("is_cpu_op", 27, 1));
}
std::string kernel_node(int id, const std::string& name, int parent, int us, int stream, int type = 4,
                        const std::string& more = "") {
  return framed(number_field(1, static_cast<std::uint64_t>(id)) + bytes_field(2, name) +
                number_field(3, static_cast<std::uint64_t>(type)) +
                number_field(4, static_cast<std::uint64_t>(parent)) + number_field(7, static_cast<std::uint64_t>(us)) +
                attribute_of("is_cpu_op", 27, 0) + attribute_of("stream", 9, static_cast<std::uint64_t>(stream)) +
                more);
}

class Chakra : public testing::Test {
 protected:
  Trace read(const std::string& bytes) {
    std::ofstream(file_, std::ios::binary) << bytes;
    return read_chakra_trace(file_);
  }
  std::string refused(const std::string& bytes) {
    try {
      read(bytes);
    } catch (const InputError& error) {
      return error.diagnostics().front().text();
    }
    return "accepted";
  }
  void TearDown() override { std::filesystem::remove(file_); }
  const std::string file_ = test::temporary_path("trace.et");
  const std::string metadata_ = framed(bytes_field(1, "0.0.4"));
};

TEST_F(Chakra, OperatorsAndTheKernelsTheyLaunched) {
  const Trace t =
      read(metadata_ +
           host_node(3, "aten::mm", "[[128, 64], [64, 32]]", "['Tensor(c10::BFloat16)', 'Tensor(c10::BFloat16)']") +
           kernel_node(4, "gemm_kernel", 3, 250, 7) + kernel_node(5, "lost", 99, 10, 7));
  EXPECT_TRUE(is_chakra_trace(file_));
  ASSERT_EQ(t.kernels.size(), 2U);
  EXPECT_EQ(t.kernels[0].dur, 250);
  EXPECT_EQ(t.kernels[0].stream, 7);
  EXPECT_GE(t.kernels[1].ts, 250) << "in the order of the file";
  EXPECT_LT(t.kernels[1].call, 0);
  ASSERT_GE(t.kernels[0].call, 0);
  const Operator& op = t.operators[static_cast<std::size_t>(t.calls[0].op)];
  const Found found = of_operator(op, "gemm_kernel");
  ASSERT_TRUE(found.shape) << found.why;
  const auto& key = std::get<ProductShape>(*found.shape).key;
  EXPECT_EQ(key.m, 128);
  EXPECT_EQ(key.n, 32);
  EXPECT_EQ(key.k, 64);
}

// Durations are whole microseconds: a kernel of less has none, and is a kernel.
TEST_F(Chakra, KernelsOfLessThanAMicrosecondAreKept) {
  const Trace t = read(metadata_ + kernel_node(4, "tiny", 3, 0, 7) + kernel_node(5, "endless", 3, 2'000'000'000, 7));
  ASSERT_EQ(t.kernels.size(), 2U);
  EXPECT_EQ(t.kernels[0].dur, 0);
  EXPECT_EQ(t.kernels[1].dur, 1e9) << "none takes longer than a quarter of an hour";
}

TEST_F(Chakra, CollectivesByTheirType) {
  const std::string sizes = attribute_of("comm_size", 9, 4096);
  const Trace t =
      read(metadata_ + kernel_node(4, "ncclDevKernel_AllReduce", 3, 9, 20, 7, attribute_of("comm_type", 9, 0) + sizes) +
           kernel_node(5, "ncclDevKernel_ReduceScatter", 3, 9, 20, 7, attribute_of("comm_type", 9, 7) + sizes) +
           kernel_node(6, "ncclDevKernel_SendRecv", 3, 9, 20, 5, sizes));
  ASSERT_EQ(t.collectives.size(), 3U);
  EXPECT_EQ(t.collectives[0].name, "allreduce");
  EXPECT_EQ(t.collectives[0].in, 4096);
  EXPECT_EQ(t.collectives[1].name, "_reduce_scatter_base");
  EXPECT_EQ(t.collectives[2].name, "send");
}

// A list of tensors is the sum of its elements; unknown fields of every wire type are passed over.
TEST_F(Chakra, ListsOfTensorsAndUnknownFields) {
  const std::string unknown = varint_of(90 << 3 | 1) + std::string(8, 'x') + varint_of(91 << 3 | 5) + "abcd" +
                              bytes_field(92, "whatever") + number_field(93, 1ULL << 63);
  const Trace t =
      read(metadata_ + host_node(1, "aten::_fused_adamw_", "[[[4, 8], [16]], [], 3]", "['GenericList', 'Int', 'Int']") +
           framed(unknown + number_field(1, 2) + number_field(7, 5) + attribute_of("is_cpu_op", 27, 0)));
  ASSERT_EQ(t.operators.size(), 1U);
  ASSERT_EQ(t.operators[0].inputs.size(), 3U);
  EXPECT_EQ(t.operators[0].inputs[0].dims, std::vector<std::int64_t>{48});
  EXPECT_TRUE(t.operators[0].inputs[1].dims.empty());
  EXPECT_EQ(t.kernels.size(), 1U);
}

TEST_F(Chakra, WhatIsCutOrNoTraceSaysWhere) {
  const std::string whole = metadata_ + kernel_node(4, "k", 3, 9, 20);
  EXPECT_NE(refused(whole.substr(0, whole.size() - 3)).find("at byte"), std::string::npos);
  EXPECT_NE(refused(metadata_ + framed(std::string(20, '\xff'))).find("more than 64 bits"), std::string::npos);
  EXPECT_NE(refused(metadata_ + framed("\x0b")).find("no Chakra execution trace"), std::string::npos);
  EXPECT_NE(refused(metadata_ + varint_of(1000) + "short").find("1000 bytes follow, and 5 do"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::calibrate::trace
