// Sequences packed of documents, against a plain GPT that is trained on each document alone, as a short sequence of its
// own that begins at position 0: whatever the split, twenty steps have its losses. And rotated positions, which need no
// reset, against one rank.
#include "sim/plan/documents.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "execute/data.h"
#include "execute/performer.h"
#include "tests/numerics/plain_runs.h"
#include "tests/numerics/plan_runs.h"

namespace rehearse::numerics {
namespace {

const char* const kPacked = R"(
rehearse: 1
model: {family: gpt, layers: 2, hidden: 24, heads: 6, head_dim: 8, ffn_hidden: 40, vocab: 61, max_seq_len: 18, attention: flash}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 2, bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 1e-2, weight_decay: 0.2, clip: 0.5, seed: 7}
)";
const std::vector<std::string> kUniform = {"training.documents=uniform", "training.document_length=6"};
const std::vector<std::string> kTable = {"training.documents=table", "training.document_lengths=[1, 3, 9]"};

const std::vector<std::string> kFours = {"training.documents=table", "training.document_lengths=[4, 8, 12]"},
                               kEights = {"training.documents=table", "training.document_lengths=[8, 16]"};

PlainCase packed_case(const std::string& name, std::int64_t gpus, std::vector<std::string> plan,
                      const std::vector<std::string>& documents = kUniform) {
  plan.insert(plan.end(), documents.begin(), documents.end());
  return {name, split(gpus, std::move(plan))};
}

std::vector<double> losses_of_single_documents(const plan::Scenario& scenario, const std::string& data_file) {
  const model::Model& m = scenario.model;
  const plan::Training& t = scenario.training;
  const auto data = execute::open_data(m, t.seq_len, t.seed, data_file);
  const PlainGpt<double>::Data whole = sequences(*data, scenario);
  PlainGpt<double> model({m.layers, m.hidden, m.heads, m.kv_heads, m.head_dim, m.ffn_hidden, m.vocab, m.max_seq_len,
                          m.tied_embeddings, m.bias},
                         initial_values(scenario));
  std::vector<double> losses;
  for (std::int64_t step = 0; step < kPlainSteps; ++step) {
    std::vector<Sequence> documents;
    for (std::int64_t i = 0; i < t.global_batch; ++i) {
      const Sequence row = whole(step, i);
      auto token = row.tokens.begin(), target = row.targets.begin();
      for (const std::int64_t length : plan::document_lengths(t, step * t.global_batch + i)) {
        documents.push_back({{token, token + length}, {target, target + length}});
        token += length, target += length;
      }
    }
    EXPECT_GT(static_cast<std::int64_t>(documents.size()), t.global_batch) << "hardly any document ends in a sequence";
    losses.push_back(model.loss_and_gradients(documents));
    model.update({t.lr, t.beta1, t.beta2, t.eps, t.weight_decay, t.clip});
  }
  return losses;
}

class PackedSequences : public testing::TestWithParam<PlainCase> {};

TEST_P(PackedSequences, TrainAsEachDocumentAloneDoes) {
  const TokenFile tokens = learnable_tokens();
  plan::Scenario scenario = scenario_from(kPacked, GetParam().assignments);
  scenario.purpose = plan::Purpose::perform;
  execute::Options options;
  options.steps = kPlainSteps;
  options.data = tokens.path();
  expect_losses(execute::perform(scenario, lower::lower(scenario), options).result.loss,
                losses_of_single_documents(scenario, tokens.path()));
}

INSTANTIATE_TEST_SUITE_P(
    Plans, PackedSequences,
    testing::Values(
        packed_case("one_rank", 1, {}), packed_case("unfused", 1, {"model.attention=unfused"}),
        packed_case("recomputed", 1, {"plan.recompute=full"}), packed_case("of_a_table", 1, {}, kTable),
        packed_case("data2_zero1", 2, {"plan.zero=1"}), packed_case("data2_zero3", 2, {"plan.zero=3"}),
        packed_case("tensor2_sequence", 2, {"plan.tensor=2", "plan.sequence_parallel=true"}),
        packed_case("pipeline2", 2, {"plan.pipeline=2"}),
        packed_case("gather2_data2", 4, {"plan.context=2", "plan.context_kind=all_gather", "plan.micro_batch=1"}),
        packed_case("ring2", 2, {"plan.context=2", "plan.micro_batch=1"}, kFours),
        packed_case("ring2_fixed_tensor2_sequence", 4,
                    {"plan.context=2", "plan.micro_batch=1", "plan.tensor=2", "plan.sequence_parallel=true"},
                    {"training.documents=fixed", "training.document_length=12"}),
        packed_case("ring4_data2_zero3", 8, {"plan.context=4", "plan.micro_batch=1", "plan.zero=3"}, kEights),
        packed_case("ring2_pipeline2_recomputed", 4,
                    {"plan.context=2", "plan.micro_batch=1", "plan.pipeline=2", "plan.recompute=full"}, kFours),
        packed_case("ulysses2", 2, {"plan.context=2", "plan.context_kind=all_to_all"}),
        packed_case("tensor2_gather2_pipeline2", 8,
                    {"plan.tensor=2", "plan.sequence_parallel=true", "plan.context=2", "plan.context_kind=all_gather",
                     "plan.pipeline=2"})),
    plain_case_name);

class PackedRope : public testing::TestWithParam<Case> {};

TEST_P(PackedRope, TrainsAsOneRankDoes) {
  expect_trains_as_one_rank(GetParam());
}

// Rows of whole documents, which lie on other ranks in every example: routers, dropout and a capacity that holds all
// choices see each token at its place in the row.
const std::string kRoutedRows =
    "rehearse: 1\n"
    "model: {family: moe, layers: 2, hidden: 32, heads: 8, kv_heads: 4, ffn_hidden: 64, vocab: 250, max_seq_len: 16, "
    "experts: 4, experts_per_token: 2, expert_ffn_hidden: 24, aux_loss: 0.05, capacity_factor: 2}\n" +
    kTraining;

class RingOfDocuments : public testing::TestWithParam<Case> {};

TEST_P(RingOfDocuments, TrainsAsOneRankDoes) {
  expect_trains_as_one_rank(GetParam(), 1);
}

std::vector<Case> ring_cases() {
  const std::string dropout = "model.dropout=0.1", sequence = "plan.sequence_parallel=true";
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, const std::string& text, Assignments plan, Assignments model,
                       const std::string& lengths = "[4, 8]") {
    plan.insert(plan.end(), {"plan.context=2", "plan.micro_batch=1"});
    model.insert(model.end(), {"training.documents=table", "training.document_lengths=" + lengths});
    cases.push_back({name, text, plan, model});
  };
  const Assignments dropless = {"model.capacity_factor=0", "model.buffer_factor=4"};
  add("gpt_dropout", kGpt, grid(2, 1, 1, 0), {dropout});
  add("llama_dropout_tensor2_sequence", kLlama, grid(4, 2, 1, 1, {sequence}), {dropout});
  add("llama_dropout_recomputed", kLlama, grid(4, 1, 1, 3, {"plan.recompute=full"}), {dropout}, "[4, 12]");
  add("llama_dropout_ops_pipeline2", kLlama, grid(4, 1, 2, 0, {"plan.recompute=ops"}), {dropout});
  add("moe", kRoutedRows, grid(2, 1, 1, 0), {});
  add("moe_expert2_dropout", kRoutedRows, grid(4, 1, 1, 1, {"plan.expert=2"}), {dropout});
  add("moe_expert4_dropless", kRoutedRows, grid(4, 1, 1, 1, {"plan.expert=4"}), dropless);
  add("moe_expert2_tensor2_sequence", kRoutedRows, grid(4, 2, 1, 1, {"plan.expert=2", sequence}), {dropout});
  add("moe_whole_tensor2", kRoutedRows, grid(4, 2, 1, 1, {"plan.expert=4", sequence, "plan.expert_tensor=1"}), {});
  add("moe_pipeline2_fsdp2", kRoutedRows, grid(4, 1, 1, 3, {"plan.expert=2", "framework=torch-fsdp2"}), {});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Plans, RingOfDocuments, testing::ValuesIn(ring_cases()), name_of_case);

const Assignments kLognormal = {"training.documents=lognormal", "training.document_length=5",
                                "training.document_sigma=0.7"};

INSTANTIATE_TEST_SUITE_P(Plans, PackedRope,
                         testing::Values(Case{"llama_ring2_pipeline2",
                                              kLlama,
                                              grid(4, 1, 2, 1, {"plan.context=2", "plan.micro_batch=1"}),
                                              {"training.documents=table", "training.document_lengths=[4, 8]"}},
                                         Case{"llama_data2_tensor2", kLlama, grid(4, 2, 1, 1), kLognormal},
                                         Case{"llama_gather2_pipeline2", kLlama,
                                              grid(4, 1, 2, 0, {"plan.context=2", "plan.context_kind=all_gather"}),
                                              kLognormal}),
                         name_of_case);

}  // namespace
}  // namespace rehearse::numerics
