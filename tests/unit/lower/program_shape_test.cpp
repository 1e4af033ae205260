// The programs say what the strategies are known for: slot orders, memory, bytes on the wire.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string_view>

#include "sim/plan/schedule/schedule.h"
#include "sim/program/memory_plan.h"
#include "sim/program/work.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

using plan::Schedule;
using program::BufferClass;

std::string order(Schedule schedule, int stage, int stages, int micro_batches, int chunks = 1) {
  std::string text;
  for (const auto& slot :
       plan::schedule_of(schedule, stages).slots(plan::PipelinePlace{stage, stages, chunks}, micro_batches)) {
    constexpr const char* kLetters[] = {"F", "B", "I", "W"};
    text += slot.kind == plan::SlotKind::backward_input && chunks == 1 ? "B" : kLetters[static_cast<int>(slot.kind)];
    text += std::to_string(slot.micro_batch + 1);
    if (chunks > 1) text += slot.chunk == 0 ? "a" : "b";
    text += " ";
  }
  return text;
}

TEST(Schedule, GpipeRunsAllForwardsThenTheBackwardsInReverse) {
  for (int stage = 0; stage < 3; ++stage) EXPECT_EQ(order(Schedule::gpipe, stage, 3, 4), "F1 F2 F3 F4 B4 B3 B2 B1 ");
}

TEST(Schedule, OneFOneBWarmsUpByTheStagesBehindIt) {
  EXPECT_EQ(order(Schedule::one_f_one_b, 0, 3, 4), "F1 F2 F3 B1 F4 B2 B3 B4 ");
  EXPECT_EQ(order(Schedule::one_f_one_b, 1, 3, 4), "F1 F2 B1 F3 B2 F4 B3 B4 ");
  EXPECT_EQ(order(Schedule::one_f_one_b, 2, 3, 4), "F1 B1 F2 B2 F3 B3 F4 B4 ");
  EXPECT_EQ(order(Schedule::one_f_one_b, 0, 8, 2), "F1 F2 B1 B2 ") << "fewer micro-batches than stages";
}

TEST(Schedule, SequentialKeepsOneMicroBatchInThePipeline) {
  EXPECT_EQ(order(Schedule::sequential, 0, 3, 3), "F1 B1 F2 B2 F3 B3 ");
}

TEST(Schedule, InterleavedPassesGroupsOfMicroBatchesThroughTheChunks) {
  EXPECT_EQ(order(Schedule::interleaved, 1, 2, 4, 2),
            "F1a F2a F1b B1b F2b B2b F3a B1a F4a B2a F3b B3b F4b B4b B3a B4a ");
}

// A stage's weight gradients come as many micro-batches late as there are stages before it, so that all hold as many.
TEST(Schedule, ZeroBubbleDelaysWeightGradientsByTheStagesBeforeIt) {
  EXPECT_EQ(order(Schedule::zero_bubble, 0, 3, 4), "F1 F2 F3 B1 W1 F4 B2 W2 B3 W3 B4 W4 ");
  EXPECT_EQ(order(Schedule::zero_bubble, 1, 3, 4), "F1 F2 B1 F3 B2 W1 F4 B3 W2 B4 W3 W4 ");
  EXPECT_EQ(order(Schedule::zero_bubble, 2, 3, 4), "F1 B1 F2 B2 F3 B3 W1 F4 B4 W2 W3 W4 ");
  EXPECT_EQ(order(Schedule::zero_bubble, 3, 4, 1), "F1 B1 W1 ") << "fewer micro-batches than stages";
}

// As dualpipe/dualpipev.py runs them (I: gradients of inputs alone).
TEST(Schedule, DualPipeVRunsForwardsOfOneChunkBesideBackwardsOfTheOther) {
  EXPECT_EQ(order(Schedule::dualpipe_v, 0, 2, 5, 2),
            "F1a F2a F3a F1b I1b W1b F2b F4a B2b F3b B1a F5a B3b F4b B2a B4b F5b B3a B5b I4a W4a I5a W5a ");
  EXPECT_EQ(order(Schedule::dualpipe_v, 1, 2, 5, 2),
            "F1a F1b F2a F2b F3a B1b F3b B1a F4a B2b F4b B2a F5a B3b F5b B3a B4b B4a I5b I5a W5b W5a ");
}

// As torch.distributed.pipelining orders it.
TEST(Schedule, ZeroBubbleVWorksOnBothChunksByTurns) {
  EXPECT_EQ(order(Schedule::zero_bubble_v, 0, 2, 5, 2),
            "F1a F2a F3a F1b I1b W1b F2b I2b W2b F4a I1a W1a F3b I3b W3b F5a I2a W2a F4b I4b W4b I3a W3a F5b I5b W5b "
            "I4a W4a I5a W5a ");
  EXPECT_EQ(order(Schedule::zero_bubble_v, 1, 2, 5, 2),
            "F1a F1b F2a F2b I1b W1b F3a I1a W1a F3b I2b W2b F4a I2a W2a F4b I3b W3b F5a I3a W3a F5b I4b W4b I4a I5b "
            "I5a W4a W5b W5a ");
}

// ZB-H1's promise (Qi et al. 2023, section 2.2): no stage needs more than the first of 1f1b, but for the output
// gradients that weight gradients wait for, at most one set of a stage's products a micro-batch that is behind.
TEST(Memory, OfZeroBubbleIsThatOfTheFirstStageOf1f1bAndTheGradientsThatWait) {
  const int stages = 4, hidden = 64, seq = 32, layers = 2;
  const auto peaks = [&](const std::string& schedule) {
    const auto program = lower::lower(scenario_from(
        "rehearse: 1\nmodel: {family: gpt, hidden: 64, heads: 4, vocab: 128, max_seq_len: 32, "
        "tied_embeddings: false, position: rope}\n",
        {"model.layers=" + std::to_string(stages * layers), "plan.pipeline=" + std::to_string(stages),
         "plan.schedule=" + schedule, "cluster.gpus=" + std::to_string(stages), "training.global_batch=12"}));
    std::vector<std::int64_t> bytes;
    for (const auto& role : program.roles) {
      const auto peak = program::memory_peak(role);
      bytes.push_back(peak.highest[static_cast<std::size_t>(BufferClass::activation)] +
                      peak.highest[static_cast<std::size_t>(BufferClass::workspace)]);
    }
    return bytes;
  };
  const auto plain = peaks("1f1b"), parted = peaks("zero_bubble");
  // Two bytes each of the gradients of qkv (3 h), of the sum after attention (h), of up (4 h) and of the layer's end
  // (h).
  const std::int64_t waiting_per_micro_batch = std::int64_t{layers} * seq * 9 * hidden * 2;
  const std::int64_t logits = std::int64_t{seq} * 128 * 2;
  for (int stage = 0; stage < stages; ++stage) {
    const std::int64_t behind = stage + 1, last = stage == stages - 1 ? stages * 4 * logits : 0;
    EXPECT_LE(parted[static_cast<std::size_t>(stage)], plain.front() + behind * waiting_per_micro_batch + last)
        << "stage " << stage;
    EXPECT_GT(parted[static_cast<std::size_t>(stage)], plain[static_cast<std::size_t>(stage)]);
  }
}

// As Megatron-LM, which reduces after the flush: the last stage's gradient is done as its last backward begins, and a
// kernel that waits for the first stage from then on holds multiprocessors.
TEST(TiedEmbeddings, AreReducedAfterTheStagesLastBackward) {
  for (const char* schedule : {"1f1b", "gpipe"}) {
    const auto program = lower::lower(
        scenario_from("rehearse: 1\nmodel: {family: gpt, layers: 4, hidden: 32, heads: 4, vocab: 64, max_seq_len: 16, "
                      "tied_embeddings: true}\ncluster: {gpus: 2}\nplan: {pipeline: 2}\ntraining: {global_batch: 4}\n",
                      {std::string("plan.schedule=") + schedule}));
    for (const program::Role& role : program.roles) {
      const auto ops_of = [&](const std::string& body) {
        const auto found = std::find_if(role.bodies.begin(), role.bodies.end(),
                                        [&](const program::Body& b) { return b.name == body; });
        return found == role.bodies.end() ? std::vector<program::Op>() : found->ops;
      };
      program::EventId last = -1;
      for (const program::Op& op : ops_of("backward.last"))
        if (role.streams[static_cast<std::size_t>(op.stream)].kind == program::StreamKind::compute) last = op.records;
      int reduces = 0;
      for (const program::Op& op : ops_of("step")) {
        if (!op.name.starts_with("embedding_reduce")) continue;
        ++reduces;
        EXPECT_GE(last, 0) << role.name << " " << schedule;
        EXPECT_EQ(std::count(op.waits.begin(), op.waits.end(), last), 1) << role.name << " " << schedule;
      }
      EXPECT_EQ(reduces, 1) << role.name;
    }
  }
}

// 7.5 billion parameters on 64 ranks, 2-byte parameters and gradients, 12 bytes of optimizer: the table of Rajbhandari
// et al. 2020 (arXiv 1910.02054, figure 1) in gigabytes.
TEST(ZeroMemory, ModelStatesOfThePaper) {
  const double published[] = {120, 31.4, 16.6, 1.88};
  for (int zero = 0; zero < 4; ++zero) {
    const auto s = scenario_from(
        "rehearse: 1\nmodel: {preset: megatron-7.5b}\ncluster: {gpus: 64}\n"
        "training: {global_batch: 64, precision: bf16, grad_dtype: bf16, reduce_dtype: bf16, clip: 0}\n",
        {"plan.zero=" + std::to_string(zero)});
    const auto program = lower::lower(s);
    const auto peak = program::memory_peak(program.roles[0]);
    double states = 0;
    for (const auto cls : {BufferClass::parameter, BufferClass::gradient, BufferClass::optimizer})
      states += static_cast<double>(peak.highest[static_cast<std::size_t>(cls)]);
    const double billions = static_cast<double>(model::parameter_count(s.model)) / 7.5e9;
    EXPECT_NEAR(states / 1e9 / billions, published[zero], published[zero] * 0.003) << "ZeRO-" << zero;
  }
}

// DualPipe has a copy of the model from either end: all its parameters and gradients twice (deepseek-ai/DualPipe).
TEST(Copies, DualPipeHasParametersAndGradientsTwice) {
  const auto bytes = [](const std::string& schedule, BufferClass cls) {
    const auto program = lower::lower(
        scenario_from("rehearse: 1\nmodel: {family: gpt, layers: 8, hidden: 64, heads: 4, vocab: 128, max_seq_len: 32, "
                      "tied_embeddings: false}\ncluster: {gpus: 4}\nplan: {pipeline: 4}\ntraining: {global_batch: 8}\n",
                      {"plan.schedule=" + schedule}));
    std::int64_t sum = 0;
    for (const program::Role& role : program.roles)
      sum += program::memory_peak(role).highest[static_cast<std::size_t>(cls)];
    return sum;
  };
  for (const BufferClass cls : {BufferClass::parameter, BufferClass::gradient})
    EXPECT_EQ(bytes("dualpipe", cls), 2 * bytes("1f1b", cls));
}

// Bytes a rank puts on the wire for data parallelism: all-reduce 2 (n-1)/n of the tensor, gather and scatter half of
// that.
double data_parallel_bytes(int zero) {
  const auto s = scenario_from(
      "rehearse: 1\nmodel: {family: gpt, layers: 4, hidden: 64, heads: 4, vocab: 128, max_seq_len: 32}\n"
      "cluster: {gpus: 4}\ntraining: {global_batch: 4, precision: fp32, clip: 0}\n",
      {"plan.zero=" + std::to_string(zero)});
  const auto program = lower::lower(s);
  return sum_over_step(program.roles[0], [](const program::Role&, const program::Op& op) {
    const auto* c = std::get_if<program::Collective>(&op.shape);
    if (c == nullptr) return 0.0;
    const double factor = c->kind == program::CollectiveKind::all_reduce ? 2 : 1;
    return factor * 3 / 4 * static_cast<double>(program::collective_bytes(op));
  });
}

TEST(ZeroTraffic, StagesOneAndTwoEqualDdpAndThreeIsHalfMore) {
  const double ddp = data_parallel_bytes(0);
  EXPECT_GT(ddp, 0);
  EXPECT_DOUBLE_EQ(data_parallel_bytes(1), ddp);
  EXPECT_DOUBLE_EQ(data_parallel_bytes(2), ddp);
  EXPECT_DOUBLE_EQ(data_parallel_bytes(3), 1.5 * ddp);
}

// Activation bytes a layer keeps for backward, unfused attention with dropout, 2-byte activations (Korthikanti et al.
// 2022, arXiv 2205.05198, equations 1 to 4), plus the norms' statistics (fp32 mean and 1/deviation, 16 bytes a row,
// 16/t a row when the rows are split), which the paper leaves out.
struct LayerBytes {
  std::string tensor, sequence_parallel, recompute;
  double expected;
};

double layer_bytes(int layers, const LayerBytes& c) {
  const auto s = scenario_from(
      "rehearse: 1\nmodel: {family: gpt, hidden: 128, heads: 8, vocab: 128, max_seq_len: 64, dropout: 0.1, attention: "
      "unfused, layers: " +
          std::to_string(layers) + "}\nplan: {micro_batch: 2}\ntraining: {precision: bf16}\n",
      {"cluster.gpus=" + c.tensor, "plan.tensor=" + c.tensor, "plan.sequence_parallel=" + c.sequence_parallel,
       "plan.recompute=" + c.recompute});
  const auto program = lower::lower(s);
  const program::Role& role = program.roles[0];
  double bytes = 0;
  for (const auto& b : role.buffers)
    if (b.lifetime == program::Lifetime::micro_batch && !b.is_view()) bytes += static_cast<double>(b.bytes());
  return bytes;
}

TEST(ActivationMemory, OfALayerIsThePapersFormula) {
  const double s = 64, b = 2, h = 128, a = 8, t = 4, sbh = s * b * h, core = 5 * a * s / h, stats = 16 * s * b;
  const LayerBytes cases[] = {{"1", "false", "none", sbh * (34 + core) + stats},
                              {"4", "false", "none", sbh * (10 + 24 / t + core / t) + stats},
                              {"4", "true", "none", sbh / t * (34 + core) + stats / t},
                              {"4", "true", "selective", sbh / t * 34 + stats / t},
                              {"1", "false", "selective", sbh * 34 + stats},
                              {"4", "false", "full", sbh * 2}};
  for (const LayerBytes& c : cases)
    EXPECT_DOUBLE_EQ(layer_bytes(3, c) - layer_bytes(2, c), c.expected)
        << "tensor " << c.tensor << " sequence parallel " << c.sequence_parallel << " recompute " << c.recompute;
}

// FLOPs of the program's own ops: without recomputation those the model needs; full recomputation adds a forward.
TEST(Flops, OfTheProgramAreThoseOfTheModel) {
  const auto flops = [](const char* recompute) {
    const auto s = scenario_from(
        "rehearse: 1\nmodel: {family: gpt, layers: 4, hidden: 256, heads: 4, vocab: 512, max_seq_len: 64, attention: "
        "unfused}\n"
        "cluster: {gpus: 4}\nplan: {tensor: 2, pipeline: 2}\ntraining: {global_batch: 6}\n",
        {std::string("plan.recompute=") + recompute});
    const auto program = lower::lower(s);
    double total = 0;
    for (const auto& role : program.roles)
      total += 2 * sum_over_step(role, [](const program::Role& r, const program::Op& op) {
                 return program::is_transfer(op) ? 0.0 : program::work_of(r, op).flops;
               });
    return std::pair(total, model::model_flops(s.model, 6, 64));
  };
  const auto [done, needed] = flops("none");
  EXPECT_DOUBLE_EQ(done, needed);
  const auto [with_recompute, same] = flops("full");
  EXPECT_GT(with_recompute, 1.2 * same);
  EXPECT_LT(with_recompute, 4.0 / 3 * same)
      << "the vocabulary product and each layer's last product are not done again";
}

// Op by op: of a layer of llama the projection and the up-projection are computed again, of one of gpt the projection;
// of some layers so much of them. Kept of a layer is more than with full recomputation and less than with none.
TEST(Flops, OfRecomputationOpByOpAndOfSomeLayers) {
  struct Counted {
    double flops;
    std::int64_t kept;  // bytes of activations a micro-batch
  };
  const auto count = [](const std::string& family, const std::vector<std::string>& plan) {
    const auto s =
        scenario_from("rehearse: 1\nmodel: {family: " + family +
                          ", layers: 4, hidden: 256, heads: 4, ffn_hidden: 1024, vocab: 512, max_seq_len: 64}\n"
                          "training: {global_batch: 1, precision: bf16}\n",
                      plan);
    const auto program = lower::lower(s);
    const program::Role& role = program.roles.front();
    Counted c{sum_over_step(role,
                            [](const program::Role& r, const program::Op& op) {
                              return std::holds_alternative<program::Gemm>(op.shape) ? program::work_of(r, op).flops
                                                                                     : 0.0;
                            }),
              0};
    for (const program::Buffer& b : role.buffers)
      if (b.cls == program::BufferClass::activation && b.lifetime == program::Lifetime::micro_batch)
        c.kept += b.bytes();
    return c;
  };
  for (const std::string family : {"gpt", "llama"}) {
    const Counted none = count(family, {}), full = count(family, {"plan.recompute=full"}),
                  ops = count(family, {"plan.recompute=ops"});
    const double projection = 2.0 * 64 * 256 * 256, up = 2.0 * 64 * 256 * 1024;
    EXPECT_DOUBLE_EQ(ops.flops - none.flops, 4 * (projection + (family == "llama" ? up : 0))) << family;
    EXPECT_LT(full.kept, ops.kept) << family;
    EXPECT_LT(ops.kept, none.kept) << family;
    const Counted half = count(family, {"plan.recompute=full", "plan.recompute_every=2"}),
                  first = count(family, {"plan.recompute=full", "plan.recompute_layers=2"}),
                  one = count(family, {"plan.recompute=full", "plan.recompute_layers=3", "plan.recompute_every=2"});
    EXPECT_DOUBLE_EQ(half.flops - none.flops, (full.flops - none.flops) / 2) << family;
    EXPECT_DOUBLE_EQ(first.flops - none.flops, (full.flops - none.flops) / 2) << family;
    EXPECT_DOUBLE_EQ(one.flops - none.flops, (full.flops - none.flops) / 4) << family;
    EXPECT_EQ(none.kept - half.kept, (none.kept - full.kept) / 2) << family;
  }
}

// Memory holds one instance of what a stage sends, so it is not written again before the send is done.
TEST(Sends, AreDoneBeforeTheirBufferIsWrittenAgain) {
  const auto s = scenario_from(
      "rehearse: 1\nmodel: {family: gpt, layers: 4, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}\n"
      "cluster: {gpus: 2}\nplan: {pipeline: 2, schedule: gpipe}\ntraining: {global_batch: 4}\n");
  const auto program = lower::lower(s);
  const program::Role& role = program.roles[0];
  for (const program::Body& body : role.bodies) {
    if (body.name != "forward") continue;
    const program::Op& send = body.ops.back();
    ASSERT_EQ(send.name, "send_forward");
    const auto writes_it = [&](const program::Op& op) {
      return !op.writes.empty() && op.writes.front().buffer == send.reads.front().buffer;
    };
    const auto writer = std::find_if(body.ops.begin(), body.ops.end(), writes_it);
    ASSERT_NE(writer, body.ops.end());
    EXPECT_EQ(std::count(writer->waits.begin(), writer->waits.end(), send.records), 1) << writer->name;
  }
}

TEST(UnevenStages, AreAccepted) {
  const std::string gpt96 =
      "rehearse: 1\nmodel: {family: gpt, layers: 96, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}\n";
  const auto many = scenario_from(gpt96, {"cluster.gpus=64", "plan.pipeline=64"});
  EXPECT_EQ(lower::lower(many).roles.size(), 64U);
  EXPECT_EQ(violations(lower::lower(many), many.grid()), "");
  const auto three =
      scenario_from(gpt96, {"model.layers=15", "cluster.gpus=9", "plan.pipeline=3", "training.global_batch=12"});
  EXPECT_EQ(three.plan.data, 3);
  EXPECT_EQ(three.plan.layers_per_stage, (std::vector<std::int64_t>{5, 5, 5}));
  EXPECT_EQ(violations(lower::lower(three), three.grid()), "");
}

const std::string kSmall =
    "rehearse: 1\nmodel: {family: gpt, layers: 4, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}\n";

// Of every role: ops of a kind, and those among them that read the loss scale.
struct Uses {
  int ops = 0, scaled = 0;
  friend bool operator==(const Uses&, const Uses&) = default;
};
std::ostream& operator<<(std::ostream& out, const Uses& u) {
  return out << u.ops << " ops, " << u.scaled << " scaled";
}
Uses uses(const program::Role& role, std::string_view kind) {
  Uses found;
  for (const auto& body : role.bodies)
    for (const program::Op& op : body.ops) {
      if (program::kind_name(op.shape) != kind) continue;
      ++found.ops;
      for (const auto& read : op.reads)
        found.scaled += role.buffers[static_cast<std::size_t>(read.buffer)].name == "loss_scale" ? 1 : 0;
    }
  return found;
}

// fp16: every stage keeps the scale, undoes it in the coefficient, and updates it once; the last multiplies the loss's
// gradient by it. The overflow check needs the norm's all-reduce whether gradients are clipped or not. Other precisions
// have none of it.
TEST(LossScale, IsKeptByEveryRankOfAnFp16Program) {
  for (const std::string clip : {"0", "1"}) {
    const program::Program p = lower::lower(scenario_from(
        kSmall, {"cluster.gpus=4", "plan.pipeline=2", "training.global_batch=8", "training.precision=fp16",
                 "training.loss_scale=128", "training.loss_scale_interval=7", "training.clip=" + clip}));
    for (const program::Role& role : p.roles) {
      EXPECT_EQ(uses(role, "update_loss_scale"), (Uses{1, 1})) << role.name;
      EXPECT_EQ(uses(role, "clip_coefficient"), (Uses{1, 1}));
      const bool last = role.pipeline == 1;
      EXPECT_EQ(uses(role, "cross_entropy_backward"), (last ? Uses{2, 2} : Uses{0, 0})) << "two backward bodies";
      EXPECT_EQ(uses(role, "all_reduce").ops > 0, true);
      const auto& state = *std::find_if(role.buffers.begin(), role.buffers.end(),
                                        [](const program::Buffer& b) { return b.name == "loss_scale"; });
      EXPECT_EQ(state.lifetime, program::Lifetime::persistent);
      EXPECT_EQ(state.init.kind, program::Init::Kind::first);
      EXPECT_EQ(state.init.scale, 128);
      for (const auto& op : role.bodies.back().ops)
        if (const auto* update = std::get_if<program::UpdateLossScale>(&op.shape)) {
          EXPECT_EQ(update->interval, 7);
        }
    }
  }
  for (const std::string precision : {"bf16", "fp32"})
    for (const program::Role& role :
         lower::lower(scenario_from(kSmall, {"cluster.gpus=2", "plan.pipeline=2", "training.precision=" + precision}))
             .roles) {
      EXPECT_EQ(uses(role, "update_loss_scale"), Uses{});
      EXPECT_EQ(uses(role, "clip_coefficient"), (Uses{1, 0}));
      EXPECT_EQ(uses(role, "cross_entropy_backward").scaled, 0);
    }
}

// A step of PyTorch's own, op by op, of a model without biases and two layers of Llama: what autocast, separate kernels
// and the foreach optimizer move, counted by hand.
class Torch : public testing::Test {
 protected:
  static constexpr std::int64_t kTokens = 64, kHidden = 64, kFfn = 96, kVocab = 128;
  const plan::Scenario scenario = scenario_from(
      "rehearse: 1\nframework: torch-ddp\n"
      "model: {family: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 4, ffn_hidden: 96, vocab: 128, max_seq_len: "
      "32}\n"
      "cluster: {gpus: 2}\nplan: {micro_batch: 2}\n"
      "training: {global_batch: 4, seq_len: 32, precision: bf16}\n");
  const program::Program program = lower::lower(scenario);

  // Bytes of the step's ops whose names hold `part`.
  std::int64_t bytes(const std::string& part) const {
    return static_cast<std::int64_t>(
        sum_over_step(program.roles[0], [&](const program::Role& r, const program::Op& op) {
          if (op.name.find(part) == std::string::npos) return 0.0;
          const program::Work w = program::work_of(r, op);
          return static_cast<double>(w.bytes_read + w.bytes_written);
        }));
  }
};

TEST_F(Torch, ResidualsAndNormsAreInFp32) {
  // norm1 of layer 0 reads and writes fp32, its cast halves that; gamma and the statistics are small.
  EXPECT_EQ(bytes("layer0.norm1.forward"), kTokens * kHidden * 8 + kHidden * 2 + kTokens * 4);
  EXPECT_EQ(bytes("layer0.norm1.cast"), kTokens * kHidden * 6);
  EXPECT_EQ(bytes("layer0.mlp.residual.forward"), kTokens * kHidden * (2 + 4 + 4)) << "bf16 branch, fp32 stream";
}

TEST_F(Torch, EveryProductsWeightsAreCastOnce) {
  const std::int64_t layer = kHidden * (3 * kHidden + kHidden + 3 * kFfn);
  EXPECT_EQ(bytes(".weight.cast"), (2 * layer + kVocab * kHidden) * 6);
}

TEST_F(Torch, ForeachAdamWMoves92BytesAParameterAndWritesTheCopies) {
  std::int64_t parameters = 0;
  for (const auto& b : program.roles[0].buffers)
    if (b.name.starts_with("exp_avg.")) parameters += b.elements();
  // 80 of the passes, 8 of clipping, 4 of reading the gradient that a fused kernel counts too, 2 + 2 of the bf16 copy.
  // The passes read the gradient twice: it is in the 80. A coefficient a bucket.
  std::int64_t buckets = 0;
  for (const auto& b : program.roles[0].buffers) buckets += b.name.starts_with("exp_avg.") ? 1 : 0;
  EXPECT_EQ(bytes("optimizer.bucket"), parameters * (80 + 8 + 2 + 2) + buckets * 4);
}

TEST_F(Torch, SwigluAndTheLossAreKernelsOfTheirOwn) {
  EXPECT_EQ(bytes("layer0.mlp.activation.forward"), kTokens * kFfn * 2 * 5) << "silu: 1 and 1, product: 2 and 1";
  EXPECT_EQ(bytes("layer0.mlp.activation.backward"), kTokens * kFfn * 2 * 9) << "product: 4 and 2, silu: 2 and 1";
  const std::int64_t logits = kTokens * kVocab;
  EXPECT_EQ(bytes("loss.forward"), logits * (4 + 4) + kTokens * (4 + 8) + 8) << "log_softmax reads and writes";
  EXPECT_EQ(bytes("loss.backward"), logits * (8 + 8) + kTokens * (4 + 8))
      << "zeros; log_softmax's two inputs, one output";
  EXPECT_EQ(bytes("logits.backward_cast"), logits * 6);
}

TEST_F(Torch, BucketsAreCopiedThereAndBack) {
  std::int64_t parameters = 0;
  for (const auto& b : program.roles[0].buffers)
    if (b.name.starts_with("exp_avg.")) parameters += b.elements();
  EXPECT_EQ(bytes("cast.bucket") + bytes("cast_back.bucket"), parameters * 16);
}

}  // namespace
}  // namespace rehearse
