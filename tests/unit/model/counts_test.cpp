// Parameter counts against the published ones to the last parameter, and FLOPs against the published closed form.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/unit/model/preset.h"

namespace rehearse::model {
namespace {

// Sums over the published checkpoints' tensors (Hugging Face).
TEST(ParameterCount, EqualsThePublishedCheckpoints) {
  EXPECT_EQ(parameter_count(preset("gpt2-small")), 124'439'808);
  EXPECT_EQ(parameter_count(preset("gpt2-medium")), 354'823'168);
  EXPECT_EQ(parameter_count(preset("gpt2-large")), 774'030'080);
  EXPECT_EQ(parameter_count(preset("gpt2-xl")), 1'557'611'200);
  EXPECT_EQ(parameter_count(preset("llama2-7b")), 6'738'415'616);
  EXPECT_EQ(parameter_count(preset("llama2-13b")), 13'015'864'320);
  EXPECT_EQ(parameter_count(preset("llama2-70b")), 68'976'648'192);
  EXPECT_EQ(parameter_count(preset("llama3-8b")), 8'030'261'248);
  EXPECT_EQ(parameter_count(preset("llama3-70b")), 70'553'706'496);
  EXPECT_EQ(parameter_count(preset("llama3-405b")), 405'853'388'800);
}

// The same, of families that add to gpt's and llama's: biases of queries, keys and values alone (Qwen2.5), more rows of
// positions (OPT), parallel blocks behind one norm (Falcon 7B) or two (Falcon 40B, 180B), tied tables (Llama 3.2).
TEST(ParameterCount, OfOtherPresetsIsThatOfTheirCheckpoints) {
  struct Published {
    const char* name;
    std::int64_t parameters;
  };
  const Published published[] = {
      {"mistral-7b", 7'241'732'096},    {"llama3.1-8b", 8'030'261'248},     {"llama3.1-70b", 70'553'706'496},
      {"llama3.2-1b", 1'235'814'400},   {"llama3.2-3b", 3'212'749'824},     {"qwen2.5-0.5b", 494'032'768},
      {"qwen2.5-1.5b", 1'543'714'304},  {"qwen2.5-3b", 3'085'938'688},      {"qwen2.5-7b", 7'615'616'512},
      {"qwen2.5-14b", 14'770'033'664},  {"qwen2.5-32b", 32'763'876'352},    {"qwen2.5-72b", 72'706'203'648},
      {"opt-125m", 125'239'296},        {"opt-1.3b", 1'315'758'080},        {"opt-6.7b", 6'658'473'984},
      {"opt-13b", 12'853'473'280},      {"opt-30b", 29'974'540'288},        {"opt-66b", 65'719'701'504},
      {"opt-2.7b", 2'651'596'800},      {"llama3.1-405b", 405'853'388'800}, {"opt-175b", 174'604'468'224},
      {"falcon-7b", 6'921'720'704},     {"falcon-40b", 41'303'293'952},     {"falcon-180b", 178'557'088'768},
      {"gpt-neox-20b", 20'554'567'680}, {"gpt-j-6b", 6'050'882'784},        {"bloom-560m", 559'214'592},
      {"bloom-1b1", 1'065'314'304},     {"bloom-1b7", 1'722'408'960},       {"bloom-3b", 3'002'557'440},
      {"bloom-7b1", 7'069'016'064},     {"bloom-176b", 176'247'271'424}};
  for (const Published& each : published) EXPECT_EQ(parameter_count(preset(each.name)), each.parameters) << each.name;
}

// Devlin et al. 2019, arXiv 1810.04805: the encoder with its pooler as in the checkpoints of bert-base-uncased and
// bert-large-uncased on Hugging Face (BertModel); with both heads (BertForPreTraining, decoder tied) the masked
// tokens' product and norm, a bias for each token, and two classes come to it.
TEST(ParameterCount, OfBertIsThatOfItsCheckpoints) {
  struct Published {
    const char* name;
    std::int64_t hidden, encoder;
  };
  for (const auto& [name, h, encoder] : {Published{"bert-base", 768, 109'482'240}, {"bert-large", 1024, 335'141'888}})
    EXPECT_EQ(parameter_count(preset(name)), encoder + (h * h + h + 2 * h) + 30'522 + (2 * h + 2)) << name;
  EXPECT_EQ(parameter_count(preset("bert-base")), 110'106'428);
  EXPECT_EQ(parameter_count(preset("bert-large")), 336'226'108);
}

// A padded vocabulary has more rows and more biases of the decoder.
TEST(ParameterCount, OfBertGrowsWithThePaddedVocabulary) {
  const Model m = preset("bert-base");
  EXPECT_EQ(parameter_count(m, 30'528) - parameter_count(m), 6 * 768 + 6);
}

// By hand, for a model of 2 layers, h = 4, f = 8 and 10 tokens, and one sequence of 6 of which 2 are predicted:
// products with weights 2 x (3 x 16 + 16 + 2 x 32) a token, attention 2 x 2 x 6 x 4 a token in full, 16 + 40 a
// predicted token, 16 + 8 of the sequence; times 2 FLOPs, times 3 for backward.
TEST(Flops, OfBertAreOfPredictedTokensInTheHead) {
  Diagnostics diagnostics;
  const Document text = Document::from_text(
      "s.yaml", "model: {family: bert, layers: 2, hidden: 4, heads: 2, ffn_hidden: 8, vocab: 10, max_seq_len: 8}",
      diagnostics);
  Model m =
      plan::read_model(text.root().get("model"), *plan::find_framework("rehearse"), REHEARSE_SOURCE_DIR, diagnostics);
  diagnostics.throw_if_any();
  EXPECT_EQ(model_flops(m, 1, 6), 6 * (6 * (256 + 96) + 6 * 56 + 24));
  m.max_predictions = 2;
  EXPECT_EQ(model_flops(m, 1, 6), 6 * (6 * (256 + 96) + 2 * 56 + 24));
  EXPECT_EQ(model_flops(m, 3, 6), 3 * model_flops(m, 1, 6));
}

// The checkpoints of Raffel et al. 2020 (arXiv 1910.10683, section 3.7: 60, 220 and 770 million, 2.8 and 11 billion)
// and of v1.1 and mT5, as transformers counts T5ForConditionalGeneration (num_parameters()).
TEST(ParameterCount, OfT5IsThatOfItsCheckpoints) {
  const std::pair<const char*, std::int64_t> stated[] = {
      {"t5-small", 60'506'624},        {"t5-base", 222'903'552},       {"t5-large", 737'668'096},
      {"t5-3b", 2'851'598'336},        {"t5-11b", 11'307'321'344},     {"t5-v1.1-small", 76'961'152},
      {"t5-v1.1-base", 247'577'856},   {"t5-v1.1-large", 783'150'080}, {"t5-v1.1-xl", 2'849'757'184},
      {"t5-v1.1-xxl", 11'135'332'352}, {"mt5-small", 300'176'768},     {"mt5-base", 582'401'280},
      {"mt5-large", 1'229'581'312},    {"mt5-xl", 3'742'619'648},      {"mt5-xxl", 12'921'057'280}};
  for (const auto& [name, parameters] : stated) EXPECT_EQ(parameter_count(preset(name)), parameters) << name;
}

// In millions, as the authors round them to one or two digits: google-research/text-to-text-transfer-transformer at
// 368700f, released_checkpoints.md, "t5.1.1.small (~77 million parameters)" to xxl; Xue et al. 2021 (arXiv 2010.11934,
// section 3.2) of mT5.
TEST(ParameterCount, OfLaterT5IsWhatItsAuthorsState) {
  struct Stated {
    const char* name;
    double millions, rounded_to;
  };
  for (const Stated& s : {Stated{"t5-v1.1-small", 77, 1}, Stated{"t5-v1.1-base", 250, 10},
                          Stated{"t5-v1.1-large", 800, 100}, Stated{"t5-v1.1-xl", 3000, 1000},
                          Stated{"t5-v1.1-xxl", 11000, 1000}, Stated{"mt5-small", 300, 10}, Stated{"mt5-base", 580, 10},
                          Stated{"mt5-large", 1200, 100}, Stated{"mt5-xl", 3700, 100}, Stated{"mt5-xxl", 13000, 1000}})
    EXPECT_EQ(std::round(static_cast<double>(parameter_count(preset(s.name))) / 1e6 / s.rounded_to) * s.rounded_to,
              s.millions)
        << s.name;
}

// As Megatron-LM and NeMo train it, tensor by tensor: one table of tokens and one of positions, a bias of each row of
// the head; a layer of the encoder with 2 norms of 2 h and biases, one of the decoder with 3 and attention twice. The
// launcher calls it 3B.
TEST(ParameterCount, OfNemosMt5IsTheSumOfItsTensors) {
  const std::int64_t h = 2048, f = 5120, vocab = 250112, attention = 4 * h * h + 4 * h, ffn = 3 * h * f + 2 * f + h;
  const Model m = preset("nemo-mt5-3b");
  EXPECT_EQ(layer_parameter_count(m, 0), attention + ffn + 4 * h);
  EXPECT_EQ(layer_parameter_count(m, 24), 2 * attention + ffn + 6 * h);
  EXPECT_EQ(parameter_count(m),
            vocab * h + 512 * h + 24 * (attention + ffn + 4 * h) + 24 * (2 * attention + ffn + 6 * h) + 4 * h + vocab);
  EXPECT_EQ(parameter_count(m), 3'233'116'416);
  // 250,368 rows of a table padded to 128 x 2 more.
  EXPECT_EQ(parameter_count(m, 250'368), 3'233'116'416 + 256 * (h + 1));
}

// 114 targets beside 512 inputs are those of the authors (random_spans_helper's docstring and T5's training).
TEST(SpanCorruption, LeavesSoManyTargets) {
  EXPECT_EQ(span_targets(512), 114);
  EXPECT_EQ(preset("t5-base").decoder_tokens(512), 114);
}

// By hand, for one layer each, h = 4, two heads of 3 columns (a = 6), f = 8, 10 tokens, 6 tokens in the encoder and 5
// in the decoder: products 4 x 24 + 2 x 32 a token and 2 x 6 x 6 in full of the encoder's; of the decoder's 6 x 24 + 2
// x 32, 2 x 5 x 6 and 2 x 6 x 6; keys and values 2 x 24 of each of the encoder's tokens; 40 a predicted token.
TEST(Flops, OfT5AreOfBothSequences) {
  Model m = preset("t5-tiny");
  m.encoder_layers = m.decoder_layers = 1, m.layers = 2;
  m.hidden = 4, m.heads = m.kv_heads = 2, m.head_dim = 3, m.ffn_hidden = 8, m.vocab = 10, m.decoder_seq_len = 5;
  EXPECT_EQ(model_flops(m, 1, 6), 6 * (6 * (96 + 64 + 72) + 5 * (144 + 64 + 60 + 72) + 6 * 48 + 5 * 40));
}

// Chowdhery et al. 2022, arXiv 2204.02311, table 1, in billions; the largest is written with its digits cut.
TEST(ParameterCount, OfPalmIsWhatItsAuthorsState) {
  const std::pair<const char*, double> stated[] = {{"8b", 8.63}, {"62b", 62.50}, {"540b", 540.35}};
  for (const auto& [name, billions] : stated)
    EXPECT_NEAR(static_cast<double>(parameter_count(preset(std::string("palm-") + name))) / 1e9, billions, 0.01)
        << name;
}

// Embedding and non-embedding parameters of Gemma Team 2024, arXiv 2403.08295, table 2, and arXiv 2408.00118, table 2.
TEST(ParameterCount, OfGemmaIsWhatItsAuthorsState) {
  struct Stated {
    const char* name;
    std::int64_t embedding, others;
  };
  const Stated stated[] = {{"gemma-2b", 524'550'144, 1'981'884'416},
                           {"gemma-7b", 786'825'216, 7'751'248'896},
                           {"gemma2-2b", 590'118'912, 2'024'517'888},
                           {"gemma2-9b", 917'962'752, 8'324'201'984},
                           {"gemma2-27b", 1'180'237'824, 26'047'480'320}};
  for (const Stated& s : stated) {
    const Model m = preset(s.name);
    EXPECT_EQ(m.vocab * m.hidden, s.embedding) << s.name;
    EXPECT_EQ(parameter_count(m) - m.vocab * m.hidden, s.others) << s.name;
  }
}

// Gemma Team 2025, arXiv 2503.19786, table 1, in millions without the embedding; the totals are those of the text
// models that keras-hub's gemma3_presets.py counts (1B, 4B, 12B).
TEST(ParameterCount, OfGemma3IsWhatItsAuthorsState) {
  struct Stated {
    const char* name;
    double others;
    std::int64_t parameters;
  };
  const Stated stated[] = {{"gemma3-270m", 100, 268'098'176},
                           {"gemma3-1b", 698, 999'885'952},
                           {"gemma3-4b", 3'209, 3'880'099'328},
                           {"gemma3-12b", 10'759, 11'765'788'416},
                           {"gemma3-27b", 25'600, 27'009'002'240}};
  for (const Stated& s : stated) {
    const Model m = preset(s.name);
    EXPECT_EQ(parameter_count(m), s.parameters) << s.name;
    EXPECT_NEAR(static_cast<double>(parameter_count(m) - m.vocab * m.hidden) / 1e6, s.others, 0.5) << s.name;
  }
}

// Parmar et al. 2024, arXiv 2402.16819, and NVIDIA 2024, arXiv 2406.11704, section 2.1: billions without the two tables
// of 256,000 tokens.
TEST(ParameterCount, OfNemotronIsWhatItsAuthorsState) {
  const std::pair<const char*, double> stated[] = {{"nemotron-4-15b", 12.5}, {"nemotron-4-340b", 331.6}};
  for (const auto& [name, billions] : stated) {
    const Model m = preset(name);
    EXPECT_NEAR(static_cast<double>(parameter_count(m) - 2 * m.vocab * m.hidden) / 1e9, billions, 0.05) << name;
  }
  EXPECT_EQ(parameter_count(preset("nemotron-4-340b")), 341'029'195'776);
}

// Billions as their names say: NVIDIA 2025, arXiv 2504.03624, and Dao and Gu 2024, arXiv 2405.21060. By hand: a mixer
// of 2,560 has products of 10,576 and 5,120 rows or columns, 5,376 filters of 4 and a bias, 3 x 80 numbers of heads and
// a norm of 5,120, beside the layer's of 2,560.
TEST(ParameterCount, OfMixersIsWhatTheirAuthorsState) {
  EXPECT_EQ(parameter_count(preset("nemotron-h-8b")), 8'100'852'736);
  EXPECT_EQ(parameter_count(preset("nemotron-h-56b")), 56'324'350'464);
  const Model mamba = preset("mamba2-2.7b");
  EXPECT_EQ(parameter_count(mamba), 2'702'599'680);
  EXPECT_EQ(layer_parameter_count(mamba), 2560 * (10'576 + 5'120) + 5'376 * 5 + 3 * 80 + 5'120 + 2'560);
  const Model hybrid = preset("nemotron-h-56b");
  EXPECT_EQ(std::count(hybrid.layer_pattern.begin(), hybrid.layer_pattern.end(), 'M'), 54);
  EXPECT_EQ(std::count(hybrid.layer_pattern.begin(), hybrid.layer_pattern.end(), '-'), 54);
  EXPECT_EQ(std::count(hybrid.layer_pattern.begin(), hybrid.layer_pattern.end(), '*'), 10);
  EXPECT_EQ(layer_parameter_count(hybrid, 7), 8192 * (64 + 2 * 8 + 64) * 128 + 8192);
  EXPECT_EQ(layer_parameter_count(hybrid, 1), 2 * 8192 * 32'768 + 8192);
}

// What their authors state, in all and active for a token; the sources stand in the presets. Mixtral's totals are those
// of its checkpoints too; Qwen3's checkpoints have norms of queries and keys (2 x 128 a layer) besides.
TEST(ParameterCount, OfExpertsIsWhatTheirAuthorsState) {
  struct Stated {
    const char* name;
    double total, active;  // billions, as written
    std::int64_t parameters, active_parameters;
  };
  const Stated stated[] = {{"mixtral-8x7b", 46.7, 12.9, 46'702'792'704, 12'879'925'248},
                           {"mixtral-8x22b", 141, 39, 140'620'634'112, 39'152'031'744},
                           {"qwen3-30b-a3b", 30.5, 3.3, 30'532'122'624, 3'353'032'704},
                           {"qwen3-235b-a22b", 235, 22, 235'093'634'560, 22'190'763'520},
                           {"llama4-maverick", 400, 17, 400'711'848'960, 17'184'691'200}};
  for (const Stated& s : stated) {
    const Model m = preset(s.name);
    EXPECT_EQ(parameter_count(m), s.parameters) << s.name;
    EXPECT_EQ(active_parameter_count(m), s.active_parameters) << s.name;
    const double digit = s.total > 100 ? 1 : 0.1;  // the last one written
    const double cut = s.total == 400 ? 2 : 1;     // "400B" and "17B" are cut, not rounded
    EXPECT_NEAR(static_cast<double>(parameter_count(m)) / 1e9, s.total, cut * digit / 2) << s.name;
    EXPECT_NEAR(static_cast<double>(active_parameter_count(m)) / 1e9, s.active, digit * 0.55) << s.name;
  }
}

// DeepSeek-AI 2024, arXiv 2405.04434 (abstract, appendix B) and arXiv 2412.19437 (abstract). The totals are those of
// the checkpoints (V3: without the module of multi-token prediction and the routers' 58 x 256 biases). What is active
// is stated without the table that embeds tokens, of which a token reads one row.
TEST(ParameterCount, OfLatentAttentionIsWhatItsAuthorsState) {
  struct Stated {
    const char* name;
    double total, total_digit, active, active_digit;  // billions, as written, and the last digit written
    std::int64_t parameters;
  };
  const Stated stated[] = {{"deepseek-v2-lite", 15.7, 0.1, 2.4, 0.1, 15'706'484'224},
                           {"deepseek-v2", 236, 1, 21, 1, 235'741'434'880},
                           {"deepseek-v3", 671, 1, 37, 1, 671'026'419'200 - 58 * 256}};
  for (const Stated& s : stated) {
    const Model m = preset(s.name);
    EXPECT_EQ(parameter_count(m), s.parameters) << s.name;
    EXPECT_NEAR(static_cast<double>(parameter_count(m)) / 1e9, s.total, s.total_digit / 2) << s.name;
    const auto active = static_cast<double>(active_parameter_count(m) - m.vocab * m.hidden);
    EXPECT_NEAR(active / 1e9, s.active, s.active_digit * 0.52) << s.name;
  }
}

// DeepSeek-V3's module: "14B" with the table and the head, which it shares and the published checkpoint has again
// (685B, its README on Hugging Face); here they count once. Tensors as in that checkpoint's model.layers.61: eh_proj,
// enorm, hnorm, shared_head.norm, and a layer with experts, which alone is the "11.5B unique parameters" of its
// README_WEIGHTS.md, and with table and head the "2.4B" that are active.
TEST(ParameterCount, OfMultiTokenPredictionIsWhatItDoesNotShare) {
  Model m = preset("deepseek-v3");
  const std::int64_t main = parameter_count(m), active = active_parameter_count(m), h = m.hidden;
  const std::int64_t flops_layer = static_cast<std::int64_t>(model_flops(m, 1, 4096));
  m.mtp_depth = 1;
  const std::int64_t module = parameter_count(m) - main, shared = 2 * m.vocab * h;
  EXPECT_EQ(module, 2 * h * h + 3 * h + layer_parameter_count(m, 60));
  EXPECT_EQ(module, 11'610'067'968);
  EXPECT_NEAR(static_cast<double>(module - 2 * h * h) / 1e9, 11.5, 0.05);
  EXPECT_NEAR(static_cast<double>(active_parameter_count(m) - active - 2 * h * h + shared) / 1e9, 2.4, 0.05);
  EXPECT_NEAR(static_cast<double>(module + shared) / 1e9, 14, 0.55);
  EXPECT_NEAR(static_cast<double>(parameter_count(m) + shared) / 1e9, 685, 0.55);
  EXPECT_EQ(active_parameter_count(m) - active,
            module - (m.experts - m.experts_per_token) * 3 * h * m.expert_ffn_hidden);
  m.mtp_depth = 3;
  EXPECT_EQ(parameter_count(m), main + 3 * module);
  // FLOPs of a module: those of one more layer, of its product, and of the head again.
  Model longer = preset("deepseek-v3");
  longer.layers += 1;
  m.mtp_depth = 1;
  const double added = model_flops(m, 1, 4096) - static_cast<double>(flops_layer);
  const double layer = model_flops(longer, 1, 4096) - static_cast<double>(flops_layer);
  EXPECT_NEAR(added / (layer + 6.0 * 4096 * static_cast<double>(2 * h * h + h * m.vocab)), 1, 1e-9);
  EXPECT_NE(flop_formula(m).find("1 modules of multi-token prediction"), std::string::npos);
}

// Agarwal et al. 2025, arXiv 2508.10925, table 1; what is active is stated without the table that embeds tokens.
TEST(ParameterCount, OfGptOssIsWhatItsAuthorsState) {
  struct Stated {
    const char* name;
    double total, active;
    std::int64_t parameters;
  };
  for (const Stated& s :
       {Stated{"gpt-oss-120b", 116.83, 5.13, 116'829'156'672}, Stated{"gpt-oss-20b", 20.91, 3.61, 20'914'757'184}}) {
    const Model m = preset(s.name);
    EXPECT_EQ(parameter_count(m), s.parameters) << s.name;
    EXPECT_NEAR(static_cast<double>(parameter_count(m)) / 1e9, s.total, 0.005) << s.name;
    EXPECT_NEAR(static_cast<double>(active_parameter_count(m) - m.vocab * m.hidden) / 1e9, s.active, 0.005) << s.name;
  }
  // A layer: two norms, queries, keys and values, the projection, sinks, the router, and experts, all but the norms
  // and sinks with biases.
  const std::int64_t h = 2880, expert = 2 * h * h + 2 * h + h * h + h;
  EXPECT_EQ(layer_parameter_count(preset("gpt-oss-20b")),
            2 * h + 5120 * (h + 1) + (4096 * h + h) + 64 + 32 * (h + 1) + 32 * expert);
}

// The model cards of Qwen/Qwen3-0.6B to -32B, of mistralai's models and of moonshotai/Kimi-K2-Base; exact counts are
// those of the checkpoints, of Kimi K2 but for the routers' biases.
TEST(ParameterCount, OfDenseModelsOf2025IsThatOfTheirCheckpoints) {
  const std::pair<const char*, std::int64_t> known[] = {
      {"qwen3-0.6b", 596'049'920},      {"qwen3-1.7b", 1'720'574'976},        {"qwen3-4b", 4'022'468'096},
      {"qwen3-8b", 8'190'735'360},      {"qwen3-14b", 14'768'307'200},        {"qwen3-32b", 32'762'123'264},
      {"llama3.3-70b", 70'553'706'496}, {"mistral-nemo-12b", 12'247'782'400}, {"mistral-small-24b", 23'572'403'200},
      {"kimi-k2", 1'026'408'209'408},   {"llama4-scout", 107'769'861'120}};
  for (const auto& [name, parameters] : known) EXPECT_EQ(parameter_count(preset(name)), parameters) << name;
  const Model kimi = preset("kimi-k2"), scout = preset("llama4-scout");
  EXPECT_NEAR(static_cast<double>(active_parameter_count(kimi) - kimi.vocab * kimi.hidden) / 1e9, 32, 0.5);
  EXPECT_NEAR(static_cast<double>(active_parameter_count(scout)) / 1e9, 17, 0.5);
}

// Zeng et al. 2025, arXiv 2508.06471, table 1, which counts multi-token prediction in the total, and neither embedding
// nor head; of the smaller model it counts no more than the layers.
TEST(ParameterCount, OfGlmIsWhatItsAuthorsState) {
  Model m = preset("glm-4.5");
  const std::int64_t tables = 2 * m.vocab * m.hidden;
  EXPECT_EQ(parameter_count(m), 352'797'814'784);
  EXPECT_NEAR(static_cast<double>(active_parameter_count(m) - tables) / 1e9, 32, 0.5);
  m.mtp_depth = 1;
  EXPECT_NEAR(static_cast<double>(parameter_count(m) - tables) / 1e9, 355, 0.5);
  const Model air = preset("glm-4.5-air");
  EXPECT_EQ(parameter_count(air), 106'852'245'504);
  EXPECT_NEAR(static_cast<double>(active_parameter_count(air) - 2 * air.vocab * air.hidden) / 1e9, 12, 0.5);
}

TEST(ParameterCount, OfDenseAndSharedExpertsIsTheSumOfTheirTensors) {
  Model m = preset("mixtral-8x7b");
  const std::int64_t h = m.hidden, all = parameter_count(m), expert = 3 * h * m.expert_ffn_hidden;
  m.shared_experts = 2, m.shared_ffn_hidden = 1000;
  EXPECT_EQ(parameter_count(m) - all, 32 * 2 * 3 * h * 1000);
  EXPECT_EQ(active_parameter_count(m), parameter_count(m) - 32 * 6 * expert);
  m.dense_layers = 3, m.ffn_hidden = 5000;
  EXPECT_EQ(parameter_count(m) - all, 29 * 2 * 3 * h * 1000 + 3 * (3 * h * 5000 - 8 * expert - 8 * h));
  EXPECT_EQ(layer_parameter_count(m, 2) - layer_parameter_count(m, 3),
            3 * h * 5000 - 8 * expert - 8 * h - 2 * 3 * h * 1000);
}

// Equation 2 of arXiv 2104.04473 is 12 l h^2 + 13 l h + (V + s) h: everything but the final norm's 2 h.
TEST(ParameterCount, OfGptIsEquationTwoPlusTheFinalNorm) {
  for (const char* name : {"gpt3-175b", "megatron-1.7b", "megatron-22b", "megatron-1008b"}) {
    const Model m = preset(name);
    const std::int64_t equation =
        12 * m.layers * m.hidden * m.hidden + 13 * m.layers * m.hidden + (m.vocab + m.max_seq_len) * m.hidden;
    EXPECT_EQ(parameter_count(m), equation + 2 * m.hidden) << name;
  }
  EXPECT_EQ(parameter_count(preset("gpt3-175b")), 174'615'846'912);
}

// Table 1 of arXiv 2104.04473 names its models by billions of parameters.
TEST(ParameterCount, OfTheMegatronSeriesIsWhatItsNamesSay) {
  const std::pair<const char*, double> series[] = {
      {"1.7b", 1.7},   {"3.6b", 3.6},     {"7.5b", 7.5},     {"18.4b", 18.4},   {"39.1b", 39.1},
      {"76.1b", 76.1}, {"145.6b", 145.6}, {"310.1b", 310.1}, {"529.6b", 529.6}, {"1008b", 1008.0}};
  for (const auto& [name, billions] : series) {
    const auto count = static_cast<double>(parameter_count(preset(std::string("megatron-") + name)));
    EXPECT_NEAR(count / 1e9, billions, 0.051) << name;
  }
}

TEST(ParameterCount, TakesAPaddedVocabularyInTheTableAndAnUntiedHead) {
  const Model gpt = preset("gpt2-small"), llama = preset("llama2-7b");
  EXPECT_EQ(parameter_count(gpt, 50304) - parameter_count(gpt), 47 * 768);
  EXPECT_EQ(parameter_count(llama, 32128) - parameter_count(llama), 2 * 128 * 4096);
}

// conv 3-64: 1,792; 64-128: 73,856; 128-256: 295,168; 4096-512: 2,097,664; 512-10: 5,130.
TEST(ParameterCount, OfTheConvolutionalNetworkIsTheSumOfItsLayers) {
  EXPECT_EQ(flattened_width(preset("cnn-cifar")), 4096);
  EXPECT_EQ(parameter_count(preset("cnn-cifar")), 1'792 + 73'856 + 295'168 + 2'097'664 + 5'130);
  EXPECT_EQ(parameter_count(preset("mlp-mnist")), 785 * 512 + 513 * 512 + 513 * 10);
}

// torchvision's weights of resnet18 to resnet152, resnext50_32x4d to resnext101_64x4d, wide_resnet50_2 and vit_b_16,
// vit_l_16, vit_h_14 (num_params, _ops in torchvision/models/resnet.py and vision_transformer.py): parameters to the
// last one, and GFLOPS, which count a multiply-add once, to their two digits behind the point (of 224 x 224; of
// vit_h_14 only 518 x 518 is given).
TEST(ParameterCount, OfVisionModelsIsTorchvisions) {
  struct Published {
    const char* name;
    std::int64_t parameters;
    double multiply_adds;
  };
  const Published published[] = {{"resnet-18", 11'689'512, 1.814},         {"resnet-34", 21'797'672, 3.664},
                                 {"resnet-50", 25'557'032, 4.089},         {"resnet-101", 44'549'160, 7.801},
                                 {"resnet-152", 60'192'808, 11.514},       {"resnext50-32x4d", 25'028'904, 4.23},
                                 {"resnext101-32x8d", 88'791'336, 16.414}, {"resnext101-64x4d", 83'455'272, 15.46},
                                 {"wide-resnet-50-2", 68'883'240, 11.398}, {"efficientnet-b0", 5'288'548, 0.386},
                                 {"efficientnet-b4", 19'341'616, 4.394},   {"vit-b-16", 86'567'656, 17.564},
                                 {"vit-l-16", 304'326'632, 61.555},        {"vit-h-14", 632'045'800, 0}};
  for (const Published& each : published) {
    const Model m = preset(each.name);
    EXPECT_EQ(parameter_count(m), each.parameters) << each.name;
    if (m.is_list()) {
      EXPECT_NEAR(layer_multiply_adds(m.layer_list, m.input()) / 1e9, each.multiply_adds, 0.005) << each.name;
    }
    if (!m.is_list() && each.multiply_adds > 0) {
      // The patches' product is done twice, all others three times.
      const double patches = static_cast<double>(m.patches() * m.patch_width() * m.hidden);
      const double forward = (model_flops(m, 1, m.max_seq_len) / 2 + patches) / 3;
      EXPECT_NEAR(forward / 1e9, each.multiply_adds, 0.01) << each.name;
    }
  }
}

// A block's 3x3 convolution of 32 groups, at 128 maps: 4 maps of a group in, 9 taps, 128 out.
TEST(ParameterCount, OfGroupsIsThatOfTheirOwnMaps) {
  const std::int64_t stage[] = {3, 4, 23, 3};
  std::int64_t grouped = 0, squeezed = 0, by_16 = 0;
  for (std::int64_t i = 0; i < 4; ++i) {
    const std::int64_t maps = 128 << i, out = 256 << i;
    grouped += stage[i] * maps * maps / 32 * 9;
    by_16 += stage[i] * (2 * out * (out / 16) + out / 16 + out);  // two linear layers and their biases
    squeezed += stage[i] * (2 * out * 16 + 16 + out);
  }
  const std::int64_t plain = 44'177'704;
  EXPECT_EQ(parameter_count(preset("resnext101-32x4d")), plain);
  EXPECT_EQ(parameter_count(preset("se-resnext101-32x4d")), plain + squeezed);
  EXPECT_EQ(plain + by_16, 48'955'416) << "as Hu et al.'s released model has it";
  EXPECT_EQ(parameter_count(preset("se-resnext50-32x4d")), 27'559'896);
  Model dense = preset("resnext101-32x4d");
  for (Layer& layer : dense.layer_list)
    for (Layer& inner : layer.body) inner.groups = 1;
  EXPECT_EQ(parameter_count(dense), plain + 31 * grouped);
}

// Of a layer: queries, keys and values 4096 to 6144, projection 4096 to 4096, gate and up 4096 to 28672, down 14336 to
// 4096; each adapter has the rank times both.
TEST(ParameterCount, OfAdaptersIsTheirRankTimesInputsAndOutputs) {
  const Model m = preset("llama3-8b");
  const std::int64_t attention = 4096 + 6144 + 4096 + 4096, mlp = 4096 + 28672 + 14336 + 4096;
  EXPECT_EQ(adapter_parameter_count(m, {16}), 35'651'584);
  EXPECT_EQ(adapter_parameter_count(m, {16}), 32 * 16 * (attention + mlp));
  EXPECT_EQ(adapter_parameter_count(m, {8, true, true, false, false}), 32 * 8 * attention);
  EXPECT_EQ(adapter_parameter_count(m, {8, false, false, true, true}), 32 * 8 * mlp);
  EXPECT_EQ(adapter_parameter_count(m, {8, true, false, false, false}), 32 * 8 * (4096 + 6144));
  EXPECT_EQ(adapter_parameter_count(m, {8, false, false, false, true}), 32 * 8 * (14336 + 4096));
  EXPECT_EQ(adapter_parameter_count(m, {}), 0);
}

// DeepSeek-V3: 61 layers, the first 3 dense. Of attention's products 7168 to 1536 to 24576, 7168 to 576, 512 to 32768,
// 16384 to 7168; of each of 256 experts and of the shared one 7168 to 4096 and 2048 to 7168; dense 7168 to 36864 and
// 18432 to 7168.
TEST(ParameterCount, OfAdaptersIsOfEveryExpertAndOfLatentAttentionsProducts) {
  const Model m = preset("deepseek-v3");
  const std::int64_t attention = (7168 + 1536) + (1536 + 24576) + (7168 + 576) + (512 + 32768) + (16384 + 7168);
  const std::int64_t expert = (7168 + 4096) + (2048 + 7168), dense = (7168 + 36864) + (18432 + 7168);
  EXPECT_EQ(adapter_parameter_count(m, {16}), 16 * (61 * attention + 3 * dense + 58 * 257 * expert));
  EXPECT_EQ(adapter_parameter_count(m, {16, false, true, false, false}), 16 * 61 * (16384 + 7168));
  EXPECT_EQ(adapter_parameter_count(m, {16, false, false, false, true}),
            16 * (3 * std::int64_t{18432 + 7168} + 58 * 257 * std::int64_t{2048 + 7168}));
}

}  // namespace
}  // namespace rehearse::model
