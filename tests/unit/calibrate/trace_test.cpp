// A PyTorch profiler's trace as the calibration reads it: traces written here in Kineto's format, with the operators
// and sizes of a layer of Llama 2 7B (2 sequences of 4,096 tokens), and times that were made up.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "calibrate/trace/trace_calibration.h"
#include "sim/base/diagnostics.h"
#include "sim/cost/device_file.h"
#include "sim/program/work.h"
#include "tests/support/temporary.h"
#include "tests/support/text.h"
#include "tests/unit/cost/ops.h"

namespace rehearse::calibrate::trace {
namespace {

namespace fs = std::filesystem;
using program::DType;

// Events one after the other on the host and on stream 7, each call 10 us after the one before.
class TraceText {
 public:
  // An operator and the kernels it launched, by the operator's id. `args`: what stands next to the id.
  TraceText& call(const std::string& op, const std::string& args, const std::vector<double>& kernels_us,
                  const std::string& kernel = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn") {
    const int id = ++id_;
    event(R"("cat":"cpu_op","name":"{}","pid":1,"tid":1,"ts":{},"dur":8,"args":{{"External id":{}{}}})", op, at_, id,
          args.empty() ? "" : "," + args);
    for (const double us : kernels_us) kernel_event(kernel, us, fmt::format(R"("External id":{})", id));
    at_ += 10;
    return *this;
  }
  TraceText& kernel_event(const std::string& name, double us, const std::string& args, double at = -1, int stream = 7) {
    if (at < 0) at = device_at_, device_at_ += us + 1;
    event(R"("cat":"kernel","name":"{}","pid":0,"tid":{},"ts":{},"dur":{},"args":{{"device":0,"stream":{},{}}})", name,
          stream, at, us, stream, args);
    return *this;
  }
  TraceText& launch(int correlation, int id) {
    event(R"("cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{},"dur":3,)"
          R"("args":{{"External id":{},"correlation":{}}})",
          at_, id, correlation);
    return *this;
  }
  // An operator that a copy or a fill is of, which is no kernel.
  TraceText& copy(const std::string& op, const std::string& args, const char* category, const char* name, double us) {
    operator_only(op, args, ++id_);
    event(
        R"("cat":"{}","name":"{}","pid":0,"tid":7,"ts":{},"dur":{},"args":{{"External id":{},"device":0,"stream":7}})",
        category, name, device_at_, us, id_);
    device_at_ += us + 1, at_ += 10;
    return *this;
  }
  TraceText& operator_only(const std::string& op, const std::string& args, int id) {
    event(R"("cat":"cpu_op","name":"{}","pid":1,"tid":1,"ts":{},"dur":8,"args":{{"External id":{},{}}})", op, at_, id,
          args);
    return *this;
  }
  TraceText& step(int number, double from, double length) {
    event(R"("cat":"user_annotation","name":"ProfilerStep#{}","pid":1,"tid":1,"ts":{},"dur":{},"args":{{}})", number,
          from, length);
    return *this;
  }
  TraceText& nccl(const std::string& name, double us, std::int64_t in, std::int64_t out, const std::string& dtype,
                  const std::string& ranks = "[0, 1, 2, 3, 4, 5, 6, 7]", double at = -1) {
    return kernel_event("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", us,
                        fmt::format(R"("Collective name":"{}","In msg nelems":{},"Out msg nelems":{},"Group size":8,)"
                                    R"("dtype":"{}","Process Group Name":"0","Process Group Ranks":"{}")",
                                    name, in, out, dtype, ranks),
                        at, 20);
  }
  TraceText& of_rank(int rank) {
    rank_ = rank;
    return *this;
  }
  double host_now() const { return at_; }
  double device_now() const { return device_at_; }
  std::string text() const {
    return R"({"schemaVersion":1,"deviceProperties":[{"id":0,"name":"NVIDIA A100-SXM4-80GB","totalGlobalMem":85100}],)"
           R"("distributedInfo":{"backend":"nccl","rank":)" +
           std::to_string(rank_) + R"(,"world_size":8},"record_shapes":1,"traceEvents":[)" + events_ +
           R"(],"traceName":"rank0.json"})";
  }

 private:
  template <typename... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    events_ +=
        (events_.empty() ? "\n" : ",\n") + (R"({"ph":"X",)" + fmt::format(format, std::forward<Args>(args)...) + "}");
  }
  std::string events_;
  int id_ = 0, rank_ = 0;
  double at_ = 1000, device_at_ = 1e6;
};

std::string tensors(const std::string& dims, const std::string& types, const std::string& strides = "",
                    const std::string& scalars = "") {
  std::string text = fmt::format(R"("Input Dims":{},"Input type":{})", dims, types);
  if (!strides.empty()) text += R"(,"Input Strides":)" + strides;
  if (!scalars.empty()) text += R"(,"Concrete Inputs":)" + scalars;
  return text;
}
const std::string kTwo = R"(["c10::BFloat16","c10::BFloat16"])";
// x [8192, 4096] times the transpose of a weight [11008, 4096]: torch.nn.Linear forward.
const std::string kForward = tensors("[[8192,4096],[4096,11008]]", kTwo, "[[4096,1],[1,4096]]");

class FromTrace : public testing::Test {
 protected:
  ~FromTrace() override {
    for (const std::string& file : files_) fs::remove(file);
  }
  std::string put(const std::string& text, const std::string& ending = "trace.json") {
    files_.push_back(rehearse::test::temporary_path(ending));
    std::ofstream(files_.back(), std::ios::binary) << text;
    return files_.back();
  }
  TraceCalibration read(const std::vector<std::string>& files, int skip = 0) {
    TraceRequest request;
    request.files = files;
    request.skip_steps = skip;
    request.command = "rehearse calibrate --from-trace";
    return calibrate_from_trace(request);
  }
  TraceCalibration of(const TraceText& trace, int skip = 0) { return read({put(trace.text())}, skip); }
  // Costs of the device with what was measured.
  std::unique_ptr<cost::CostModel> costs(const TraceCalibration& made) {
    const std::string device = fmt::format("{}/calibrate/devices/{}.yaml", REHEARSE_SOURCE_DIR, made.device);
    return cost::load_costs({device, put(made.text, "measured.yaml")});
  }
  std::string refusal(const std::string& text, const std::string& ending = "trace.json") {
    try {
      read({put(text, ending)});
      return "";
    } catch (const InputError& error) {
      return error.diagnostics().front().text();
    }
  }

 private:
  std::vector<std::string> files_;
};

Time us(double value) {
  return Time::from_seconds(value * 1e-6);
}

cost::test::OneOp product(std::int64_t m, std::int64_t n, std::int64_t k, bool ta, bool tb) {
  cost::test::OneOp one = cost::test::gemm(m, n, k);
  auto& g = std::get<program::Gemm>(one.op.shape);
  g.transpose_a = ta, g.transpose_b = tb;
  return one;
}

cost::Estimate estimate(const cost::CostModel& costs, const cost::test::OneOp& one) {
  return costs.kernel(one.role, one.op, {});
}

// The three products of a linear layer, told apart by strides. The weight's gradient ran in two parts and their sum:
// 500 + 30. Of an odd number of calls the median is one of them.
TEST_F(FromTrace, ProductsTakeTheirOperatorsShapeAndLayout) {
  TraceText t;
  for (const double more : {0.0, 60.0, 5.0}) t.call("aten::mm", kForward, {3600.25 + more});
  t.call("aten::mm", tensors("[[8192,11008],[11008,4096]]", kTwo, "[[11008,1],[4096,1]]"), {3500});
  t.call("aten::mm", tensors("[[11008,8192],[8192,4096]]", kTwo, "[[1,11008],[4096,1]]"), {500, 30});
  const TraceCalibration made = of(t);
  EXPECT_EQ(made.device, "a100-sxm-80g");
  EXPECT_EQ(made.products, 3u);
  EXPECT_DOUBLE_EQ(made.used, 1);
  const auto model = costs(made);
  const cost::Estimate forward = estimate(*model, product(8192, 11008, 4096, false, true));
  EXPECT_EQ(forward.duration, us(3605.25));
  EXPECT_EQ(forward.coverage, cost::Coverage::exact);
  EXPECT_EQ(estimate(*model, product(8192, 4096, 11008, false, false)).duration, us(3500));
  cost::test::OneOp weight = product(11008, 4096, 8192, true, false);
  EXPECT_EQ(estimate(*model, weight).duration, us(530));
  weight.role.buffers.back().dtype = DType::f32;
  EXPECT_EQ(estimate(*model, weight).duration, us(530)) << "programs have gradients in fp32";
  ASSERT_EQ(model->device().measured_in.size(), 1u);
  EXPECT_TRUE(has(model->device().measured_in.front(), "a profiler's trace of 1 GPU")) << made.text;
}

// Without strides nobody knows the layout: the sizes alone count, for each layout.
TEST_F(FromTrace, ProductsWithoutStridesCountForEachLayout) {
  TraceText t;
  t.call("aten::mm", tensors("[[8192,4096],[4096,11008]]", kTwo), {3600});
  t.call("aten::linear", tensors("[[2,4096,4096],[32000,4096],[]]", R"(["c10::BFloat16","c10::BFloat16",""])"), {9000});
  const TraceCalibration made = of(t);
  EXPECT_TRUE(has(made.text, "without_strides: 1")) << made.text;
  const auto model = costs(made);
  for (const bool transposed : {false, true})
    EXPECT_NEAR(estimate(*model, product(8192, 11008, 4096, false, transposed)).duration.seconds(), 3600e-6, 1e-11);
  EXPECT_EQ(estimate(*model, product(8192, 32000, 4096, false, true)).duration, us(9000));
}

TEST_F(FromTrace, AKernelWithoutAnOperatorsIdIsFoundByItsLaunch) {
  TraceText t;
  t.operator_only("aten::mm", kForward, 900).launch(4711, 900);
  t.kernel_event("gemm", 3600, R"("External id":0,"correlation":4711)");
  t.kernel_event("gemm", 100, R"("External id":0,"correlation":4712)");
  const TraceCalibration made = of(t);
  EXPECT_EQ(estimate(*costs(made), product(8192, 11008, 4096, false, true)).duration, us(3600));
  EXPECT_EQ(made.samples.left_out.at("linked to no operator").kernels, 1u);
}

// [batch, heads, seq, dim] of PyTorch's function and [batch, seq, heads, dim] of the kernel are the same attention. Its
// backward is three kernels.
TEST_F(FromTrace, AttentionOfEitherLayout) {
  const std::string types =
      R"(["c10::BFloat16","c10::BFloat16","c10::BFloat16","","","Scalar","Scalar","Scalar","Scalar"])";
  TraceText t;
  t.call("aten::_flash_attention_forward",
         tensors("[[2,4096,32,128],[2,4096,8,128],[2,4096,8,128],[],[],[],[],[],[]]", types, "",
                 R"(["","","","","","4096","4096","0.","True"])"),
         {2400}, "void pytorch_flash::flash_fwd_kernel");
  t.call("aten::_scaled_dot_product_flash_attention_backward",
         tensors("[[2,32,4096,128],[2,32,4096,128],[2,8,4096,128],[2,8,4096,128],[],[],[],[],[],[],[],[]]",
                 R"(["c10::BFloat16","c10::BFloat16","c10::BFloat16","c10::BFloat16","","","","","","","",""])", "",
                 R"(["","","","","","","","","","","0.","True"])"),
         {100, 7000, 50}, "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel");
  const TraceCalibration made = of(t);
  EXPECT_EQ(made.attentions, 2u);
  const auto model = costs(made);
  const auto time = [&](program::AttentionPart part) {
    cost::test::OneOp one = cost::test::attention(part, 2, 32, 4096);
    std::get<program::Attention>(one.op.shape).kv_heads = 8;
    std::get<program::Attention>(one.op.shape).kernel = program::AttentionKernel::sdpa_flash;
    return estimate(*model, one);
  };
  EXPECT_NEAR(time(program::AttentionPart::flash_forward).duration.seconds(), 2400e-6, 2e-12);
  EXPECT_NEAR(time(program::AttentionPart::flash_backward).duration.seconds(), 7150e-6, 2e-12);
  EXPECT_EQ(time(program::AttentionPart::flash_forward).coverage, cost::Coverage::exact);
}

// The operator that launches the kernel is the innermost: cuDNN's has been one of its own since PyTorch 2.7 or so, and
// FlashAttention 3 has operators of its own library. The flag stands elsewhere among the inputs of each.
TEST_F(FromTrace, AttentionByTheOperatorThatLaunchesIt) {
  const auto inputs = [](int leading, const char* query, const char* key, std::size_t count, std::size_t causal) {
    std::string dims, types, scalars;
    for (std::size_t i = 0; i < count; ++i) {
      const bool tensor = i < static_cast<std::size_t>(leading) + 3;
      const bool wide = i <= static_cast<std::size_t>(leading);
      dims += (i > 0 ? "," : "") + std::string(!tensor ? "[]" : wide ? query : key);
      types += fmt::format("{}\"{}\"", i > 0 ? "," : "", tensor ? "c10::BFloat16" : "");
      scalars += fmt::format("{}\"{}\"", i > 0 ? "," : "", i == causal ? "False" : "");
    }
    return tensors('[' + dims + ']', '[' + types + ']', "", '[' + scalars + ']');
  };
  const char* const heads_first = "[2,32,4096,128]";
  const char* const heads_last = "[2,4096,32,128]";
  TraceText cudnn, third;
  cudnn.call("aten::_cudnn_attention_forward", inputs(0, heads_first, "[2,8,4096,128]", 12, 10), {1900},
             "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0");
  cudnn.call("aten::_cudnn_attention_backward", inputs(1, heads_first, "[2,8,4096,128]", 15, 14), {4500},
             "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_128x64x128_4x1x1_kernel0_0");
  third.call("flash_attn_3::fwd", inputs(0, heads_last, "[2,4096,8,128]", 34, 24), {1900}, "device_kernel");
  third.call("flash_attn_3::bwd", inputs(1, heads_last, "[2,4096,8,128]", 22, 16), {4500}, "device_kernel");
  for (const auto& [trace, kernel] : {std::pair(&cudnn, "cudnn"), std::pair(&third, "flash3")}) {
    const TraceCalibration made = of(*trace);
    EXPECT_EQ(made.attentions, 2u) << kernel;
    EXPECT_EQ(made.samples.no_causal, 0u) << kernel;
    EXPECT_TRUE(has(made.text, fmt::format("kernel: {}\n", kernel))) << made.text;
    for (const char* row : {"forward,no,2,4096,32,8,128,", "backward,no,2,4096,32,8,128,"})
      EXPECT_TRUE(has(made.text, row)) << made.text;
  }
}

// A file of measurements holds one attention kernel.
TEST_F(FromTrace, OfTwoAttentionKernelsTheOneThatTookLongerIsKeptAndTheOtherCounted) {
  const std::string types = R"(["c10::BFloat16","c10::BFloat16","c10::BFloat16"])";
  const std::string concrete = R"(["","","","","","0.","True"])";
  TraceText t;
  t.call("aten::_scaled_dot_product_flash_attention",
         tensors("[[2,32,4096,128],[2,32,4096,128],[2,32,4096,128]]", types, "", concrete), {2400},
         "void pytorch_flash::flash_fwd_kernel");
  for (const char* dims :
       {"[[2,32,1024,128],[2,32,1024,128],[2,32,1024,128]]", "[[2,32,512,128],[2,32,512,128],[2,32,512,128]]"})
    t.call("aten::_scaled_dot_product_cudnn_attention", tensors(dims, types, "", concrete), {100}, "cudnn_fwd");
  const TraceCalibration made = of(t);
  EXPECT_EQ(made.attentions, 1u);
  EXPECT_EQ(made.other_attentions, 2u);
  EXPECT_NE(made.text.find("kernel: sdpa_flash\n"), std::string::npos) << made.text;
  EXPECT_NE(made.text.find("attention_left_out: 2 "), std::string::npos) << made.text;
}

// What Llama's norm moves, as the program's op counts it, and its backward's two passes, which are two ops.
TEST_F(FromTrace, NormsMoveWhatTheProgramsOpDoes) {
  TraceText t;
  t.call("aten::_fused_rms_norm", tensors("[[2,4096,4096],[],[4096],[]]", R"(["c10::BFloat16","","c10::BFloat16",""])"),
         {120});
  const std::string backward = tensors("[[2,4096,4096],[2,4096,4096],[],[2,4096,1],[4096],[]]",
                                       R"(["c10::BFloat16","c10::BFloat16","","float","c10::BFloat16",""])");
  t.call("aten::_fused_rms_norm_backward", backward, {180}, "void at::native::layer_norm_grad_input_kernel");
  t.call("aten::_fused_rms_norm_backward", backward, {90, 10}, "void at::native::cuComputeGradGammaBeta");
  const TraceCalibration made = of(t);
  EXPECT_TRUE(has(made.text, "rms_norm_forward,bf16,0,134258688,120,trace")) << made.text;
  EXPECT_TRUE(has(made.text, "rms_norm_backward_input,bf16,0,201367552,180,trace")) << made.text;
  EXPECT_TRUE(has(made.text, "rms_norm_backward_weight,bf16,0,134283264,100,trace")) << made.text;
}

// silu and the product with it are one op; of its backward, silu's and two products. The loss is two operators.
TEST_F(FromTrace, SumsOfOperatorsMakeOneOp) {
  const std::string both = tensors("[[2,4096,11008],[2,4096,11008]]", kTwo);
  TraceText t;
  t.call("aten::silu", tensors("[[2,4096,11008]]", R"(["c10::BFloat16"])"), {200});
  t.call("aten::mul", both, {300}).call("aten::mul", both, {310}).call("aten::mul", both, {290});
  t.call("aten::silu_backward", both, {280});
  t.call("aten::_log_softmax", tensors("[[8192,32000],[],[]]", R"(["float","Scalar","Scalar"])"), {1500});
  t.call("aten::nll_loss_forward",
         tensors("[[8192,32000],[8192],[],[],[]]", R"(["float","long int","","Scalar","Scalar"])"), {40});
  const TraceCalibration made = of(t);
  EXPECT_TRUE(has(made.text, "swiglu_forward,bf16,0,901775360,500,trace")) << made.text;
  EXPECT_TRUE(has(made.text, "swiglu_backward,bf16,0,1623195648,880,trace")) << made.text;
  EXPECT_TRUE(has(made.text, "cross_entropy_forward,f32,0,2097250312,1540,trace")) << made.text;
}

TEST_F(FromTrace, OtherMemoryBoundKernels) {
  TraceText t;
  t.call("aten::add", tensors("[[2,4096,4096],[2,4096,4096],[]]", R"(["c10::BFloat16","c10::BFloat16","Scalar"])"),
         {130});
  t.call("aten::add", tensors("[[2,4096,4096],[4096],[]]", R"(["c10::BFloat16","c10::BFloat16","Scalar"])"), {99});
  t.call("aten::copy_", tensors("[[8192,32000],[8192,32000],[]]", R"(["float","c10::BFloat16","Scalar"])"), {1000});
  t.call("aten::index_select", tensors("[[32000,4096],[],[8192]]", R"(["c10::BFloat16","Scalar","int"])"), {110});
  t.call("aten::_fused_adamw_", tensors("[[[16000000],[384512]],[]]", R"(["TensorList",""])"), {400});
  const TraceCalibration made = of(t);
  EXPECT_TRUE(has(made.text, "add,bf16,0,201326592,130,trace")) << made.text;
  EXPECT_TRUE(has(made.text, "cast,f32,0,1572864000,1000,trace")) << made.text;
  EXPECT_TRUE(has(made.text, "embedding_forward,bf16,0,134250496,110,trace")) << made.text;
  EXPECT_TRUE(has(made.text, "adamw,f32,0,524304388,400,trace")) << made.text;
  EXPECT_EQ(made.samples.left_out.at("an addition that broadcasts").kernels, 1u);
}

// An all-gather's tensor is the whole, of which a rank gives an eighth. A kernel waits for the last rank, so one rank's
// trace counts by its 10th percentile: of 900 to 1000 us in steps of 10 that is 910.
TEST_F(FromTrace, ACollectiveOfOneRanksTraceIsItsTenthPercentile) {
  TraceText t;
  t.call("aten::mm", kForward, {3600});
  for (int i = 0; i <= 10; ++i) t.nccl("_allgather_base", 1000 - 10 * i, 25297920, 202383360, "BFloat16");
  const TraceCalibration made = of(t);
  EXPECT_TRUE(has(made.text, "all_gather,8,1,404766720,910,trace")) << made.text;
}

// Ranks wait for one another: of two ranks' traces the shorter kernel of each call counts, then the median.
TEST_F(FromTrace, ACollectiveOfSeveralRanksIsTheLeastOfEachCall) {
  TraceText a, b;
  a.call("aten::mm", kForward, {3600}), b.call("aten::mm", kForward, {3600});
  for (const double us : {1000.0, 1100.0, 1200.0}) a.nccl("allreduce", us, 1 << 20, 1 << 20, "Float");
  for (const double us : {1500.0, 1050.0, 1300.0}) b.nccl("allreduce", us, 1 << 20, 1 << 20, "Float");
  const TraceCalibration made = read({put(a.text()), put(b.of_rank(1).text())});
  EXPECT_TRUE(has(made.text, "all_reduce,8,1,4194304,1050,trace")) << made.text;
  EXPECT_TRUE(has(made.text, "a profiler's trace of 2 GPUs")) << made.text;
}

// One rank's trace twice would count as two ranks' that never wait for each other.
TEST_F(FromTrace, OneRanksTraceTwiceIsRefused) {
  TraceText t, later;
  t.call("aten::mm", kForward, {3600}), later.call("aten::mm", kForward, {3700});
  const auto refused = [&](const std::vector<std::string>& files) {
    try {
      read(files);
      return std::string();
    } catch (const InputError& error) {
      return error.diagnostics().front().text();
    }
  };
  const std::string file = put(t.text());
  EXPECT_TRUE(has(refused({file, file}), "is of rank 0, as " + file + " is")) << refused({file, file});
  EXPECT_TRUE(has(refused({file, put(later.text())}), "is of rank 0, as")) << "another stretch of the same rank";
  // A copy under another name, of ranks that the files do not name.
  const auto nameless = [](std::string text) {
    text.replace(text.find("\"rank\":0,"), 9, "");
    return text;
  };
  const std::string first = put(nameless(t.text())), copy = put(nameless(t.text()));
  EXPECT_TRUE(has(refused({first, copy}), "has the same kernels at the same times as " + first))
      << refused({first, copy});
  EXPECT_EQ(refused({first, put(nameless(later.text()))}), "");
  EXPECT_EQ(refused({file, put(later.of_rank(1).text())}), "");
}

// Ranks 0, 8, 16, ... are of eight nodes. Messages, and collectives whose arguments stand at the operator.
TEST_F(FromTrace, NodesOfACollectiveFollowFromItsRanks) {
  TraceText t;
  t.call("aten::mm", kForward, {3600});
  t.nccl("_reduce_scatter_base", 700, 8 << 20, 1 << 20, "Float", "[0, 8, 16, 24, 32, 40, 48, 56]");
  t.nccl("send", 700, 8 << 20, 8 << 20, "Float");
  t.call("record_param_comms",
         R"("Collective name":"broadcast","In msg nelems":1024,"Out msg nelems":1024,"Group size":8,"dtype":"Half",)"
         R"("Process Group Name":"0","Process Group Ranks":"[0, 1, 2, 3, 4, 5, 6, 7]")",
         {33}, "ncclDevKernel_Broadcast_RING_LL");
  const TraceCalibration made = of(t);
  EXPECT_TRUE(has(made.text, "reduce_scatter,8,8,33554432,700,trace")) << made.text;
  EXPECT_TRUE(has(made.text, "broadcast,8,1,2048,33,trace")) << made.text;
  EXPECT_EQ(made.samples.left_out.at("a message between two ranks, whose time is mostly waiting").kernels, 1u);
}

// Beside a collective a product is slower: with three others it does not count, with two it does, and is marked.
TEST_F(FromTrace, KernelsBesideCollectivesCountOnlyWhereOthersAreFew) {
  for (const int others : {2, 3}) {
    TraceText t;
    for (int i = 0; i < others; ++i) t.call("aten::mm", kForward, {3600});
    const double at = t.device_now();
    t.call("aten::mm", kForward, {4400}).call("aten::mm", kForward, {4500}).call("aten::mm", kForward, {4600});
    t.nccl("allreduce", 13000, 1 << 20, 1 << 20, "Float", "[0, 1, 2, 3, 4, 5, 6, 7]", at + 100);
    const TraceCalibration made = of(t);
    EXPECT_EQ(made.beside, others < 3 ? 1u : 0u);
    EXPECT_EQ(estimate(*costs(made), product(8192, 11008, 4096, false, true)).duration, us(others < 3 ? 4400 : 3600));
  }
}

// Copies that are no kernels: within the GPU's memory one is a copy like a kernel's, from the host it is none of a
// program's, though the operator is the same.
TEST_F(FromTrace, CopiesWithoutAKernel) {
  const std::string same = tensors("[[4096,4096],[4096,4096],[]]", R"(["c10::BFloat16","c10::BFloat16","Scalar"])");
  TraceText t;
  t.call("aten::mm", kForward, {3600});
  t.copy("aten::copy_", same, "gpu_memcpy", "Memcpy DtoD (Device -> Device)", 40);
  t.copy("aten::copy_", same, "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1400);
  t.copy("aten::zero_", same, "gpu_memset", "Memset (Device)", 15);
  const TraceCalibration made = of(t);
  EXPECT_TRUE(has(made.text, "copy,bf16,0,67108864,40,trace")) << made.text;
  EXPECT_EQ(made.samples.left_out.at("a copy between memories").kernels, 1u);
  EXPECT_EQ(made.samples.left_out.at("a fill that is no kernel").kernels, 1u);
}

// A kernel of NCCL with which nobody recorded what it was for is none of the operator that its id happens to be of.
TEST_F(FromTrace, CollectivesWithoutTheirArgumentsAreLeftOut) {
  TraceText t;
  t.call("aten::mm", kForward, {3600});
  t.call("aten::mm", kForward, {90000}, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
  const TraceCalibration made = of(t);
  EXPECT_EQ(made.samples.left_out.at("a collective whose bytes were not recorded").kernels, 1u);
  EXPECT_EQ(estimate(*costs(made), product(8192, 11008, 4096, false, true)).duration, us(3600));
}

TEST_F(FromTrace, CompiledKernelsAreToldByTheirNameToo) {
  TraceText t;
  t.call("aten::mm", kForward, {3600});
  t.call("## Call CompiledFxGraph fm5 ##", "", {20}, "triton_red_fused__to_copy_mean_mul_pow_rsqrt_1");
  t.call("aten::add", "", {20}, "triton_poi_fused_add_0");
  EXPECT_EQ(of(t).samples.left_out.at("fused by torch.compile").kernels, 2u);
}

// A kernel that no operator launched is of the step in which the host launched it, however late the GPU came to it.
TEST_F(FromTrace, AnUnlinkedKernelIsOfTheStepThatItWasLaunchedIn) {
  TraceText t;
  const double first = t.host_now();
  t.launch(4711, 0).call("aten::mm", kForward, {9000});
  const double second = t.host_now();
  t.kernel_event("no_operators", 100, R"("External id":0,"correlation":4711)", second + 5e6);
  t.call("aten::mm", kForward, {3600});
  t.step(3, first - 1, second - first).step(4, second, 1e9);
  EXPECT_EQ(of(t, 1).samples.skipped, 2u);
}

TEST_F(FromTrace, AStepThatTheLoopBeganAndLeftIsNone) {
  TraceText t;
  const double first = t.host_now();
  t.call("aten::mm", kForward, {9000});
  t.step(3, first - 1, 8).step(4, t.host_now(), 3);
  EXPECT_TRUE(has(of(t).text, "  steps: 1\n"));
  EXPECT_THROW(of(t, 1), InputError);
}

TEST_F(FromTrace, TheFirstStepsCanBeLeftOut) {
  TraceText t;
  const double first = t.host_now();
  t.call("aten::mm", kForward, {9000});
  const double second = t.host_now();
  t.call("aten::mm", kForward, {3600});
  t.step(3, first - 1, second - first).step(4, second - 1, 10);
  EXPECT_EQ(estimate(*costs(of(t, 0)), product(8192, 11008, 4096, false, true)).duration, us(6300));
  const TraceCalibration later = of(t, 1);
  EXPECT_EQ(later.samples.skipped, 1u);
  EXPECT_EQ(estimate(*costs(later), product(8192, 11008, 4096, false, true)).duration, us(3600));
  try {
    of(t, 2);
    FAIL() << "there are two steps";
  } catch (const InputError& error) {
    EXPECT_TRUE(has(error.what(), "the trace has 2 steps, and all are to be skipped")) << error.what();
  }
}

// What a person has to change is said: shapes, and what the profiler is to look at.
TEST_F(FromTrace, TracesThatTellTooLittleAreRefusedWithTheRemedy) {
  TraceText no_shapes;
  no_shapes.call("aten::mm", "", {3600});
  EXPECT_TRUE(has(refusal(no_shapes.text()), "set record_shapes=True")) << refusal(no_shapes.text());
  TraceText no_kernels;
  no_kernels.call("aten::mm", kForward, {});
  EXPECT_TRUE(has(refusal(no_kernels.text()), "ProfilerActivity.CUDA")) << refusal(no_kernels.text());
  TraceText no_operators;
  no_operators.kernel_event("gemm", 10, R"("External id":5)");
  EXPECT_TRUE(has(refusal(no_operators.text()), "ProfilerActivity.CPU")) << refusal(no_operators.text());
  TraceText nothing;
  nothing.call("aten::bmm", tensors("[[64,4096,128],[64,128,4096]]", kTwo), {3600});
  EXPECT_TRUE(has(refusal(nothing.text()), "a batched product")) << refusal(nothing.text());
  EXPECT_TRUE(has(refusal("[1, 2]"), "expected a JSON mapping with the list traceEvents"));
  EXPECT_TRUE(has(refusal(R"({"traceEvents": {}})"), "expected a JSON mapping with the list traceEvents"));
}

TEST_F(FromTrace, AnUnknownGpuNeedsADevicesName) {
  TraceText t;
  std::string text = t.call("aten::mm", kForward, {3600}).text();
  text.replace(text.find("NVIDIA A100-SXM4-80GB"), 21, "NVIDIA L4");
  EXPECT_TRUE(has(refusal(text), "is of NVIDIA L4, for which there is no device file")) << refusal(text);
}

TEST_F(FromTrace, BrokenJsonIsRefusedWithItsPlace) {
  TraceText t;
  std::string text = t.call("aten::mm", kForward, {3600}).call("aten::mm", kForward, {3600}).text();
  text.resize(text.rfind("\"dur\""));
  const std::string why = refusal(text);
  EXPECT_TRUE(has(why, ":5:")) << why;  // a line an event, after the first
  EXPECT_TRUE(has(why, "is broken JSON")) << why;
}

TEST_F(FromTrace, GzipIsReadAsItIsAndRefusedWhereItEndsEarly) {
  TraceText t;
  const std::string text = t.call("aten::mm", kForward, {3600}).text();
  const std::string path = put("", "trace.json.gz");
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  EXPECT_EQ(read({path}).products, 1u);
  fs::resize_file(path, fs::file_size(path) / 2);
  try {
    read({path});
    FAIL() << "half of a file";
  } catch (const InputError& error) {
    EXPECT_TRUE(has(error.what(), "is broken gzip")) << error.what();
  }
}

TEST(ShippedDevice, IsFoundByTheNameThatCudaGives) {
  const std::pair<const char*, const char*> names[] = {{"NVIDIA A100-SXM4-80GB", "a100-sxm-80g"},
                                                       {"NVIDIA A100 80GB PCIe", "a100-pcie-80g"},
                                                       {"NVIDIA A100-SXM4-40GB", "a100-sxm-40g"},
                                                       {"NVIDIA H100 80GB HBM3", "h100-sxm"},
                                                       {"NVIDIA H100 PCIe", "h100-pcie"},
                                                       {"NVIDIA H100 NVL", ""},
                                                       {"NVIDIA H800", "h800"},
                                                       {"NVIDIA A800-SXM4-80GB", "a800"},
                                                       {"NVIDIA L40S", "l40s"},
                                                       {"AMD Instinct MI300X", "mi300x"},
                                                       {"NVIDIA H200", "h200-sxm"},
                                                       {"NVIDIA GB200", "gb200"},
                                                       {"Tesla V100-SXM2-32GB", "v100-sxm2-32g"}};
  for (const auto& [gpu, device] : names) {
    EXPECT_EQ(shipped_device(gpu), device) << gpu;
    if (*device != '\0') {
      EXPECT_TRUE(fs::exists(fmt::format("{}/calibrate/devices/{}.yaml", REHEARSE_SOURCE_DIR, device))) << device;
    }
  }
}

}  // namespace
}  // namespace rehearse::calibrate::trace
