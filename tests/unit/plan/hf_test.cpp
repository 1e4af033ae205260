// Models from Hugging Face's config.json: the files of hf/ have the keys and values of those on the hub. Counts are
// those of the checkpoints there (the sums over their tensors), and a model that is a preset here too is the preset.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "sim/plan/keys.h"
#include "tests/unit/plan/hf_files.h"

namespace rehearse::plan {
namespace {

TEST_F(HfTest, CountsAreThoseOfTheCheckpoints) {
  struct Published {
    const char* name;
    std::int64_t parameters;
  };
  const Published published[] = {
      {"llama-2-7b", 6'738'415'616},
      {"llama-3-8b", 8'030'261'248},
      {"llama-3-70b", 70'553'706'496},
      {"llama-3.1-405b", 405'853'388'800},
      {"llama-3.2-1b", 1'235'814'400},
      {"mixtral-8x7b", 46'702'792'704},
      {"gpt2", 124'439'808},
      {"mistral-7b", 7'241'732'096},
      {"qwen2.5-7b", 7'615'616'512},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"deepseek-v3", 671'026'419'200 - 58 * 256 + 11'610'067'968},  // less the routers' biases, with the module
      {"deepseek-v2-lite", 15'706'484'224},
      {"kimi-k2", 1'026'408'209'408},  // less the routers' biases, 60 x 384
      {"qwen3-8b", 8'190'735'360},
      {"gpt-oss-120b", 116'829'156'672},
      {"llama-4-maverick", 400'711'848'960},             // text_config alone
      {"glm-4.5-air", 106'852'245'504 + 2'375'059'456},  // with the module of multi-token prediction
      {"opt-6.7b", 6'658'473'984},
      {"falcon-7b", 6'921'720'704},
      {"falcon-40b", 41'303'293'952},
      {"phi-3-mini", 3'821'079'552},
      {"starcoder2-3b", 3'030'371'328},
      {"starcoder", 15'517'456'384},
      {"command-r", 34'980'831'232},
      {"redpajama-7b", 6'857'302'016},
      {"gpt-neox-20b", 20'554'567'680},
      {"gpt-j-6b", 6'050'882'784},
      {"bloom", 176'247'271'424},
      {"phi-1_5", 1'418'270'720},
      {"nemotron-4-340b", 341'029'195'776},
      {"gemma-2b", 2'506'172'416},
      {"gemma-2-27b", 27'227'128'320},
      {"gemma-3-1b", 999'885'952},
      {"gemma-3-4b",
       4'300'079'472 - 416'866'032 - 2'950'272},  // text_config alone: less encoder and projector of images
      {"mistral-small-3.1", 23'572'403'200},      // text_config alone, as Mistral Small 3
      {"smollm3-3b", 3'075'098'624},
      {"glm-4-9b", 9'400'279'040},
      {"t5-base", 222'903'552},
      {"t5-v1_1-base", 247'577'856},
      {"mt5-small", 300'176'768},
      {"vit-base-patch16-224", 86'567'656},
      {"resnet-50", 25'557'032},
      {"bert-base-uncased", 110'106'428},  // as BertForPreTraining: the file is of BertForMaskedLM, without the pooler
  };
  for (const Published& each : published) {
    const Model m = file(each.name);
    expect_sound();
    EXPECT_EQ(model::parameter_count(m), each.parameters) << each.name;
    ASSERT_FALSE(m.notes.empty());
    EXPECT_FALSE(says(m, "Not known here")) << each.name << ": every key of a file of the hub is known";
  }
}

// Every key of the model, as a scenario would say it.
std::string dump(const Model& m) {
  std::string out;
  for (const Key& key : keys())
    if (key.field.is_of<Model>()) out += fmt::format("{} = {}\n", key.path, text_of(key.field.get(m, key.values)));
  return out;
}

// The sequences of a preset are those it was trained on, and so may be shorter than the file's.
TEST_F(HfTest, AModelThatIsAPresetIsThePreset) {
  struct Same {
    const char *file, *preset, *more;
  };
  for (const Same& same :
       {Same{"llama-2-7b", "llama2-7b", ""},
        {"llama-3-8b", "llama3-8b", ""},
        {"llama-3-70b", "llama3-70b", ""},
        {"llama-3.1-405b", "llama3-405b", ""},
        {"mixtral-8x7b", "mixtral-8x7b", ""},
        {"gpt2", "gpt2-small", ""},
        {"qwen3-30b-a3b", "qwen3-30b-a3b", ""},
        {"qwen3-8b", "qwen3-8b", ""},
        {"kimi-k2", "kimi-k2", ", max_seq_len: 4096, aux_loss: 0"},
        {"gpt-oss-120b", "gpt-oss-120b", ", aux_loss: 0, rope_scaling: yarn, rope_factor: 32, rope_trained_len: 4096"},
        {"llama-4-maverick", "llama4-maverick", ", aux_loss: 0"},
        {"glm-4.5-air", "glm-4.5-air", ", mtp_depth: 0"},
        {"gpt-j-6b", "gpt-j-6b", ""},
        {"bloom", "bloom-176b", ""},
        {"vit-base-patch16-224", "vit-b-16", ""},
        {"resnet-50", "resnet-50", ""},
        {"deepseek-v2-lite", "deepseek-v2-lite", ", max_seq_len: 4096"},
        {"deepseek-v3", "deepseek-v3",
         ", max_seq_len: 4096, aux_loss: 0.0001, mtp_depth: 0, rope_scaling: none, rope_factor: 8, rope_trained_len: "
         "8192"}}) {
    const Model from_file = file(same.file, same.more);
    expect_sound();
    EXPECT_EQ(dump(from_file), dump(read_value(same.preset))) << same.file;
    expect_sound();
  }
}

TEST_F(HfTest, OtherKeysOverrideTheFile) {
  const Model m = file("llama-2-7b", ", layers: 4, name: small, dropout: 0.25, bias: true, attention: unfused");
  expect_sound();
  EXPECT_EQ(m.layers, 4);
  EXPECT_EQ(m.hidden, 4096);
  EXPECT_EQ(m.name, "small");
  EXPECT_EQ(m.dropout, 0.25);
  EXPECT_TRUE(m.bias);
  EXPECT_EQ(m.attention, model::AttentionKind::unfused);
  EXPECT_TRUE(says(m, "num_hidden_layers 32 (the scenario has layers)"));
  EXPECT_EQ(file("llama-2-7b").name, "Llama-2-7b-hf");
  EXPECT_EQ(file("mixtral-8x7b").name, "mixtral");
  file("llama-2-7b", ", layer: 4");
  ASSERT_EQ(diagnostics_.list().size(), 1U);
  EXPECT_EQ(diagnostics_.list()[0].file, "s.yaml");
  EXPECT_EQ(diagnostics_.list()[0].hint, "did you mean 'layers'?");
}

TEST_F(HfTest, WhatWasReadAssumedAndIgnoredIsSaid) {
  const Model m = file("gpt2");
  EXPECT_TRUE(
      says(m, "of the kind gpt2 (GPT2LMHeadModel): 124,439,808 parameters. Read: n_layer 12, n_embd 768, n_head 12, "));
  EXPECT_TRUE(says(m, "Missing or null, so as transformers has it: n_inner 4 x n_embd, tie_word_embeddings true, "));
  EXPECT_TRUE(says(m, "Left to the scenario: resid_pdrop (model.dropout), embd_pdrop (model.dropout), "));
  EXPECT_TRUE(says(m, "Of no matter to time or memory: "));
  const Model v3 = file("deepseek-v3"), v2 = file("deepseek-v2-lite"), k2 = file("kimi-k2");
  EXPECT_EQ(v3.rope_scaling, RotationScaling::yarn);
  EXPECT_EQ(v3.rope_factor, 40);
  EXPECT_EQ(v3.rope_trained_len, 4096);
  EXPECT_TRUE(says(v2, "yarn with 'mscale_all_dim'")) << "0.707";
  EXPECT_EQ(v2.rope_scaling, RotationScaling::none);
  EXPECT_EQ(k2.rope_base, 50000);
  EXPECT_TRUE(says(v3, "num_nextn_predict_layers 1"));
  EXPECT_EQ(v3.mtp_depth, 1);
  EXPECT_EQ(changed("deepseek-v3", "  \"num_nextn_predict_layers\": 1,\n", "").mtp_depth, 0);
  EXPECT_TRUE(says(v3, "quantization_config (see training.precision)"));
  EXPECT_EQ(v3.expert_groups, 8);
  EXPECT_EQ(v3.groups_per_token, 4);
  EXPECT_TRUE(file("qwen3-30b-a3b").qk_norm);
  EXPECT_TRUE(
      says(file("llama-2-7b"), "head_dim hidden_size / num_attention_heads, attention_bias false, mlp_bias false"));
  EXPECT_TRUE(says(changed("gpt2", "\"n_ctx\"", "\"use_flash\": true, \"n_ctx\""),
                   "Not known here, and not taken: use_flash."));
}

TEST_F(HfTest, OfGemmaCapsNormsAndBasesAreRead) {
  const auto says = [](const Model& m) {
    return fmt::format("{} {} {} {} {} {} | {} {} | {} {} {}", m.scaled_embeddings, m.zero_centered_norms, m.post_norms,
                       m.qk_norm, m.attention_softcap, m.logit_softcap, m.sliding_window, m.full_attention_every,
                       m.query_scale, m.rope_base, m.rope_base_local);
  };
  EXPECT_EQ(says(file("gemma-2b")), "true true false false 0 0 | 0 0 | 0 10000 0");
  EXPECT_EQ(says(file("gemma-2-27b")), "true true true false 50 30 | 4096 2 | 144 10000 0");
  EXPECT_EQ(says(file("gemma-3-1b")), "true true true true 0 0 | 512 6 | 256 1000000 10000");
  EXPECT_EQ(file("gemma-2b").activation, model::ActivationKind::geglu);
  EXPECT_TRUE(file("gemma-2b").tied_embeddings);
  expect_sound();
  // Newer files list the layers.
  const std::string pattern = "\"sliding_window_pattern\": 6", types = "\"layer_types\": ";
  const auto listed = [&](const std::string& letters) {
    std::string list;
    for (const char letter : letters)
      list += fmt::format("{}\"{}_attention\"", list.empty() ? "" : ", ", letter == 's' ? "sliding" : "full");
    return changed("gemma-3-1b", pattern, types + "[" + list + "]").full_attention_every;
  };
  EXPECT_EQ(listed("ssfssf"), 3);
  EXPECT_EQ(
      changed("gemma-2-27b", "\"attn_logit_softcapping\": 50.0", "\"attn_logit_softcapping\": null").attention_softcap,
      0)
      << "null: not capped";
  changed("gemma-2b", "\"attention_bias\": false", "\"attention_bias\": true");
  EXPECT_EQ(problem(), "5:21: true: biases of attention's products alone are not available yet");
}

// As nvidia/Nemotron-H-8B-Base-8K has it, and state-spaces/mamba2-2.7b as transformers writes it.
TEST_F(HfTest, LayersOfOneBranchAreRead) {
  const std::string pattern = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";
  const auto nemotron = [&](const std::string& layers) {
    return "{\"model_type\": \"nemotron_h\", \"attention_head_dim\": 128, \"chunk_size\": 128, \"conv_kernel\": 4, "
           "\"expand\": 2, \"hidden_size\": 4096, \"intermediate_size\": 21504, \"mamba_head_dim\": 64, "
           "\"mamba_num_heads\": 128, \"max_position_embeddings\": 8192, \"mlp_hidden_act\": \"relu2\", \"n_groups\": "
           "8, \"num_attention_heads\": 32, \"num_hidden_layers\": 52, \"num_key_value_heads\": 8, \"ssm_state_size\": "
           "128, \"tie_word_embeddings\": false, \"use_bias\": false, \"use_conv_bias\": true, \"vocab_size\": "
           "131072, " +
           layers + "}";
  };
  const Model by_letters = text(nemotron("\"hybrid_override_pattern\": \"" + pattern + "\""));
  expect_sound();
  EXPECT_EQ(model::parameter_count(by_letters), 8'100'852'736);
  EXPECT_EQ(by_letters.position, model::Position::none);
  EXPECT_EQ(by_letters.activation, model::ActivationKind::squared_relu);
  std::string words;
  for (const char c : pattern)
    words += fmt::format("{}\"{}\"", words.empty() ? "" : ", ", c == 'M' ? "mamba" : c == '*' ? "attention" : "mlp");
  EXPECT_EQ(text(nemotron("\"layers_block_type\": [" + words + "]")).layer_pattern, pattern);
  expect_sound();
  text("{\"model_type\": \"mamba\"}");
  EXPECT_NE(problem().find("mamba2 and nemotron_h are"), std::string::npos) << problem();
  const Model mamba = text(
      "{\"model_type\": \"mamba2\", \"hidden_size\": 2560, \"num_hidden_layers\": 64, \"vocab_size\": 50288, "
      "\"num_heads\": 80, \"head_dim\": 64, \"n_groups\": 1, \"state_size\": 128, \"chunk_size\": 256, "
      "\"time_step_limit\": [0.0, Infinity], \"tie_word_embeddings\": true}");  // as Python's json writes it
  expect_sound();
  EXPECT_EQ(model::parameter_count(mamba), 2'702'599'680);
  EXPECT_EQ(mamba.mamba_chunk, 256);
}

TEST_F(HfTest, LayersThatAttendDifferentlyAreRead) {
  const Model oss = file("gpt-oss-120b");
  EXPECT_TRUE(oss.attention_sinks && oss.bias);
  EXPECT_EQ(oss.full_attention_every, 2);
  EXPECT_TRUE(says(oss, "yarn with 'truncate'"));
  EXPECT_EQ(changed("gpt-oss-120b", "\"sliding_window\": 128,", "").sliding_window, 128);
  changed("gpt-oss-120b", "\"swiglu_limit\": 7.0", "\"swiglu_limit\": 6.0");
  EXPECT_EQ(problem(), "83:19: 6, where activation: swiglu_oai has 7");
  const Model scout =
      changed("llama-4-maverick", "\"interleave_moe_layer_step\": 2", "\"interleave_moe_layer_step\": 1");
  EXPECT_EQ(scout.expert_layers(), 48);
  EXPECT_TRUE(says(scout, "what is beside text_config: images"));
  EXPECT_EQ(file("llama-4-maverick").expert_layers(), 24);
  EXPECT_TRUE(says(changed("llama-4-maverick", "\"use_qk_norm\": false", "\"use_qk_norm\": true"), "use_qk_norm"));
  expect_sound();
  changed("llama-4-maverick", "\"no_rope_layers\": []", "\"no_rope_layers\": [1, 1, 0, 1]");
  EXPECT_NE(problem().find("30:23: '0' of layer 2, expected every 4th"), std::string::npos) << problem();
  text("{\"model_type\": \"llama4\"}");
  EXPECT_NE(problem().find("without its text_config"), std::string::npos) << problem();
  const Model glm = file("glm-4.5-air");
  EXPECT_TRUE(glm.qkv_bias);
  EXPECT_EQ(glm.rotary_dim, 64);
  EXPECT_EQ(glm.mtp_depth, 1);
  expect_sound();
}

TEST_F(HfTest, AnglesAreRead) {
  const auto angles = [](const Model& m) {
    return fmt::format("{} {} {} {} {} {}", m.rope_base, static_cast<int>(m.rope_scaling), m.rope_factor,
                       m.rope_low_freq_factor, m.rope_high_freq_factor, m.rope_trained_len);
  };
  EXPECT_EQ(angles(file("llama-2-7b")), "10000 0 8 1 4 8192");
  EXPECT_EQ(angles(file("llama-3-8b")), "500000 0 8 1 4 8192");
  EXPECT_EQ(angles(file("llama-3.2-1b")), "500000 2 32 1 4 8192");
  EXPECT_EQ(angles(changed("llama-3.2-1b", "\"low_freq_factor\": 1.0", "\"low_freq_factor\": 0.5")),
            "500000 2 32 0.5 4 8192");
  EXPECT_EQ(angles(changed("llama-3.2-1b", "\"high_freq_factor\": 4.0", "\"high_freq_factor\": 8.0")),
            "500000 2 32 1 8 8192");
  EXPECT_EQ(angles(file("mixtral-8x7b")), "1000000 0 8 1 4 8192");
  EXPECT_EQ(angles(file("command-r")), "8000000 0 8 1 4 8192");
  EXPECT_EQ(angles(changed("mixtral-8x7b", "  \"rope_theta\": 1000000.0,\n", "")), "1000000 0 8 1 4 8192");
  const std::string none = "\"rope_scaling\": null", is = "\"rope_scaling\": ";
  EXPECT_EQ(angles(changed("gemma-3-1b", none, is + "{\"factor\": 8.0, \"rope_type\": \"linear\"}")),
            "1000000 1 8 1 4 8192");
  EXPECT_EQ(angles(changed("llama-3-8b", none,
                           is + "{\"type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 32768}")),
            "500000 3 4 1 4 32768");
  const Model longer = changed("phi-3-mini", none, is + "{\"type\": \"longrope\", \"long_factor\": [1.0]}");
  EXPECT_EQ(longer.rope_scaling, RotationScaling::none);
  EXPECT_TRUE(says(longer, "angles of the kind 'longrope'"));
  // As transformers 5 has it, with one for each kind of layer too.
  EXPECT_EQ(angles(changed("llama-3-8b", none,
                           "\"rope_parameters\": {\"rope_theta\": 70000, \"rope_type\": \"linear\", \"factor\": 2}")),
            "70000 1 2 1 4 8192");
  const Model both = changed("gemma-3-1b", none,
                             "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 3000000, \"rope_type\": "
                             "\"linear\", \"factor\": 4}, \"sliding_attention\": {\"rope_theta\": 20000}}");
  EXPECT_EQ(angles(both), "3000000 1 4 1 4 8192");
  EXPECT_EQ(both.rope_base_local, 20000);
  expect_sound();
}

// What transformers has where nothing is said may be written out; all else is said to be left out, none in silence.
TEST_F(HfTest, OfAnglesNothingIsDroppedInSilence) {
  const std::string none = "\"rope_scaling\": null", taken = "rope_scaling (its parts are taken)";
  const auto yarn = [&](const std::string& more) {
    return changed("llama-3-8b", none, "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, " + more + "}");
  };
  const Model usual = yarn(
      "\"beta_fast\": 32.0, \"beta_slow\": 1, \"truncate\": true, \"attention_factor\": 1.138629436111989, "
      "\"mscale\": null");
  EXPECT_EQ(usual.rope_scaling, RotationScaling::yarn);
  EXPECT_EQ(usual.rope_factor, 4);
  EXPECT_TRUE(says(usual, taken));
  EXPECT_FALSE(says(usual, "Not simulated"));
  for (const char* more : {"\"beta_fast\": 16", "\"beta_slow\": 2", "\"truncate\": false", "\"attention_factor\": 1.0",
                           "\"mscale\": 0.707"}) {
    const Model m = yarn(more);
    EXPECT_EQ(m.rope_scaling, RotationScaling::none) << more;
    EXPECT_TRUE(says(m, "Not simulated: rope_scaling (yarn with '")) << more;
    EXPECT_FALSE(says(m, taken)) << more;
  }
  EXPECT_TRUE(says(changed("llama-3-8b", none,
                           "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2.0, \"mrope_section\": [16]}"),
                   "rope_scaling.mrope_section (not known here)"));
  expect_sound();
  changed("llama-3-8b", none, "\"rope_scaling\": \"linear\"");
  EXPECT_NE(problem().find("expected a mapping or null"), std::string::npos) << problem();
}

// transformers 5 has the share of columns that turn in rope_parameters.
TEST_F(HfTest, TheShareOfColumnsThatTurnIsInTheNewPlaceToo) {
  const std::string none = "\"rope_scaling\": null";
  const Model half = changed("llama-3-8b", none, "\"rope_parameters\": {\"partial_rotary_factor\": 0.5}");
  EXPECT_EQ(half.rotary_dim, 64);
  EXPECT_TRUE(says(half, "partial_rotary_factor 0.5: rotary_dim 64"));
  EXPECT_EQ(changed("llama-3-8b", none, "\"rope_parameters\": {\"partial_rotary_factor\": 1.0}").rotary_dim,
            file("llama-3-8b").rotary_dim);
  const Model unread = changed("mixtral-8x7b", "\"rope_theta\"",
                               "\"rope_parameters\": {\"partial_rotary_factor\": 0.5}, \"rope_theta\"");
  EXPECT_TRUE(says(unread, "rope_parameters.partial_rotary_factor (not known here)"));
  expect_sound();
  changed("llama-3-8b", none, "\"rope_parameters\": {\"partial_rotary_factor\": 1.5}");
  EXPECT_NE(problem().find("1.5 of a head's columns turn"), std::string::npos) << problem();
}

TEST_F(HfTest, DefaultsAreThoseOfTheKind) {
  EXPECT_EQ(changed("mistral-7b", "  \"sliding_window\": 4096,\n", "").sliding_window, 4096);
  EXPECT_EQ(changed("mistral-7b", "\"sliding_window\": 4096", "\"sliding_window\": null").sliding_window, 0);
  EXPECT_EQ(changed("mistral-7b", "  \"num_key_value_heads\": 8,\n", "").kv_heads, 8);
  EXPECT_EQ(changed("llama-2-7b", "  \"num_key_value_heads\": 32,\n", "").kv_heads, 32);
  EXPECT_FALSE(changed("llama-2-7b", "  \"tie_word_embeddings\": false,\n", "").tied_embeddings);
  EXPECT_TRUE(file("gpt2").tied_embeddings);
  EXPECT_EQ(changed("gpt2", "\"n_ctx\"", "\"n_inner\": 2048, \"n_ctx\"").ffn_hidden, 2048);
  EXPECT_EQ(file("gpt2").ffn_hidden, 3072);
  EXPECT_EQ(file("gpt-neox-20b").rotated(), 24);
  EXPECT_EQ(changed("gpt-neox-20b", "  \"rotary_pct\": 0.25,\n", "").rotated(), 24);
  EXPECT_EQ(file("redpajama-7b").rotated(), 128);
  EXPECT_EQ(file("nemotron-4-340b").rotated(), 96);
  EXPECT_EQ(file("nemotron-4-340b").activation, model::ActivationKind::squared_relu);
  EXPECT_TRUE(file("qwen2.5-7b").qkv_bias);
  EXPECT_FALSE(file("qwen2.5-7b").bias);
  EXPECT_EQ(file("deepseek-v2-lite").q_lora_rank, 0);
  EXPECT_EQ(file("opt-6.7b").learned_positions(), 2050);
  EXPECT_EQ(file("falcon-7b").kv_heads, 1);
  EXPECT_EQ(file("falcon-7b").parallel_block, model::ParallelBlock::one_norm);
  EXPECT_EQ(file("falcon-40b").parallel_block, model::ParallelBlock::two_norms);
  EXPECT_EQ(changed("llama-2-7b", "\"model_type\": \"llama\",", "").layers, 32) << "architectures say it too";
  // ResNetConfig: stages of 3, 4, 6 and 3 blocks, of the widths of bottlenecks, whichever blocks they are.
  EXPECT_EQ(changed("resnet-50", "\"depths\"", "\"stages\"").residual_layers, (std::vector<std::int64_t>{3, 4, 6, 3}));
  EXPECT_EQ(changed("vit-base-patch16-224", "\"id2label\": {", "\"num_labels\": 21, \"words\": {").classes, 21);
  EXPECT_EQ(changed("vit-base-patch16-224", "\"id2label\": {", "\"num_labels\": 21, \"id2label\": {").classes, 1000);
  EXPECT_EQ(changed("vit-base-patch16-224", "\"id2label\": {", "\"words\": {").classes, 2);
  expect_sound();
  std::string basic = contents("resnet-50");
  basic.replace(basic.find("\"bottleneck\""), 12, "\"basic\"").replace(basic.find("\"hidden_sizes\""), 14, "\"sizes\"");
  text(basic);
  EXPECT_NE(problem().find("[256, 512, 1024, 2048], expected [64, 128, 256, 512] of basic blocks"), std::string::npos)
      << problem();
}

// A file's "layer_types" by their first letters.
std::string layers(std::string_view letters) {
  std::string list;
  for (const char letter : letters)
    list += fmt::format("{}\"{}_attention\"", list.empty() ? "" : ", ", letter == 's' ? "sliding" : "full");
  return "[" + list + "]";
}

// A file of Qwen's with its window in use: `types` are its layer_types, `first` its max_window_layers.
TEST_F(HfTest, WindowsAreOfTheLayersThatTheFileNames) {
  const auto qwen = [&](std::int64_t first, const std::string& types) {
    std::string all = contents("qwen2.5-7b");
    const auto replace = [&](const std::string& from, const std::string& to) {
      const std::size_t at = all.find(from);
      ASSERT_NE(at, std::string::npos) << from;
      all.replace(at, from.size(), to);
    };
    replace("\"max_window_layers\": 28", fmt::format("\"max_window_layers\": {}", first));
    replace("\"sliding_window\": 131072", "\"sliding_window\": 4096");
    replace("\"use_sliding_window\": false",
            "\"use_sliding_window\": true" + (types.empty() ? "" : ", \"layer_types\": " + layers(types)));
    return text(all);
  };
  const auto says = [](const Model& m) { return std::pair(m.sliding_window, m.full_attention_every); };
  EXPECT_EQ(says(qwen(0, "")), std::pair(std::int64_t{4096}, std::int64_t{0}));
  EXPECT_EQ(says(qwen(28, "")), std::pair(std::int64_t{0}, std::int64_t{0}));
  EXPECT_EQ(says(qwen(28, "ssss")), std::pair(std::int64_t{4096}, std::int64_t{0}));
  EXPECT_EQ(says(qwen(28, "sfsf")), std::pair(std::int64_t{4096}, std::int64_t{2}));
  EXPECT_EQ(says(qwen(28, "sssssfsssssfs")), std::pair(std::int64_t{4096}, std::int64_t{6}));
  EXPECT_EQ(says(qwen(28, "ffff")), std::pair(std::int64_t{0}, std::int64_t{0}));
  expect_sound();
  qwen(21, "");
  EXPECT_EQ(problem(),
            "13:24: the first 21 layers have no window: only every so many-th without one is available "
            "(model.full_attention_every)");
}

TEST_F(HfTest, WhatNoFamilyExpressesIsRefusedByName) {
  const auto refused = [&](const std::string& name, const std::string& from, const std::string& to) {
    changed(name, from, to);
    return problem();
  };
  EXPECT_EQ(refused("llama-2-7b", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\""),
            "8:17: 'gelu': the feed-forward layer of family llama is gated by silu");
  const std::string used = "\"use_sliding_window\": true";
  EXPECT_EQ(refused("qwen2.5-7b", "\"use_sliding_window\": false", "\"layer_types\": [\"sliding_attention\"]"),
            "26:18: layers with a window, but use_sliding_window is false");
  EXPECT_EQ(refused("qwen2.5-7b", "\"use_sliding_window\": false", used + ", \"layer_types\": " + layers("sfsff")),
            "26:46: 'full_attention' of layer 4: expected windows (sliding_attention) in all layers, or in all but "
            "every so many-th (full_attention)");
  EXPECT_EQ(changed("falcon-7b", "\"alibi\": false", "\"alibi\": true").position, model::Position::alibi);
  EXPECT_EQ(refused("redpajama-7b", "\"rotary_pct\": 1.0", "\"rotary_pct\": 1.5"),
            "17:17: 1.5 of a head's columns turn, expected 0 to 1");
  EXPECT_EQ(refused("redpajama-7b", "\"rotary_pct\": 1.0", "\"rotary_pct\": 0.09"),
            "17:17: rope turns pairs of features, but rotary_dim is 11");
  EXPECT_EQ(refused("opt-6.7b", "\"word_embed_proj_dim\": 4096", "\"word_embed_proj_dim\": 512"),
            "28:26: an embedding of another width than the layers is not available");
  EXPECT_EQ(refused("deepseek-v3", "\"moe_layer_freq\": 1", "\"moe_layer_freq\": 2"),
            "25:21: layers without experts between those that have them: only 1 is available");
  const std::string mpt = refused("gpt2", "\"model_type\": \"gpt2\"", "\"model_type\": \"mpt\"");
  EXPECT_TRUE(mpt.starts_with("12:17: models of the kind mpt cannot be read: norms")) << mpt;
  EXPECT_NE(mpt.find("(available: llama, mistral, mixtral, gpt2, qwen2, "), std::string::npos) << mpt;
  const std::string misspelt = refused("llama-2-7b", "\"model_type\": \"llama\"", "\"model_type\": \"lama\"");
  EXPECT_TRUE(misspelt.starts_with("13:17: models of the kind 'lama' are not known (did you mean 'llama'?"))
      << misspelt;
}

TEST_F(HfTest, WrongFilesSayWhereAndWhatWasExpected) {
  const auto wrong = [&](const std::string& from, const std::string& to) {
    changed("llama-2-7b", from, to);
    return problem();
  };
  EXPECT_EQ(
      wrong("\"hidden_size\": 4096", "\"hidden_size\": 4100"),
      "14:26: hidden 4100 is not divisible by 32 heads (give head_dim if the heads do not divide the hidden size)")
      << "where num_attention_heads stands";
  EXPECT_EQ(wrong("\"hidden_size\": 4096", "\"hidden_size\": \"4096\""),
            "9:18: expected an integer (digits only), found the text '4096' (remove the quotes)");
  EXPECT_EQ(wrong("\"num_hidden_layers\": 32", "\"num_hidden_layers\": -1"),
            "15:24: -1 is out of range, expected at least 1");
  EXPECT_EQ(wrong("\"num_hidden_layers\": 32", "\"num_hidden_layers\": null"), "15:3: is null, expected an integer");
  EXPECT_EQ(wrong("\"num_key_value_heads\": 32", "\"num_key_value_head\": 8"),
            "16:25: unknown key, and one of much the same name is missing (did you mean 'num_key_value_heads'?)");
  EXPECT_EQ(
      wrong("\"use_cache\": true,", "\"use_cache\": true"),
      "24:14: not JSON: syntax error while parsing object - unexpected string literal; expected '}' (expected the "
      "config.json of a model, an object in braces)");
  EXPECT_EQ(wrong("\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 1e400"),
            "18:19: the number '1e400' does not fit in 64 bits");
  changed("llama-2-7b", "\"num_hidden_layers\": 32", "\"num_hidden_layer\": 32");
  ASSERT_EQ(diagnostics_.list().size(), 2U);
  EXPECT_EQ(diagnostics_.list()[0].message, "required key is missing, expected an integer");
  EXPECT_EQ(diagnostics_.list()[0].hint, "is it 'num_hidden_layer'?");
}

TEST_F(HfTest, WhatIsNoConfigurationAtAllSaysSo) {
  text("[1, 2]");
  EXPECT_EQ(problem(),
            "1:1: is array, expected an object (the config.json of a model: {\"model_type\": \"llama\", ...})");
  text("<!doctype html>\n<html>");
  EXPECT_NE(problem().find("a web page, as it seems"), std::string::npos) << problem();
  text("{\"dim\": 4096}");
  EXPECT_EQ(problem(),
            "1:1: neither model_type nor architectures says what kind of model this is (expected as in \"model_type\": "
            "\"llama\")");
  text("{\"model_type\": [\"llama\"]}");
  EXPECT_EQ(problem(), "1:16: expected text (expected as in \"model_type\": \"llama\")");
  text("{\"hidden_size\": 1");
  EXPECT_TRUE(problem().starts_with("1:18: not JSON: ")) << problem();
  read_value("{hf: nowhere/config.json}");
  ASSERT_EQ(diagnostics_.list().size(), 1U);
  EXPECT_EQ(diagnostics_.list()[0].text(),
            "s.yaml:1:13: error: model.hf: nowhere/config.json cannot be read: No such file or directory");
  file("gpt2", ", preset: gpt2-small");
  ASSERT_EQ(diagnostics_.list().size(), 1U);
  EXPECT_EQ(diagnostics_.list()[0].path, "model.preset");
  read_value("{hf: ''}");
  EXPECT_EQ(diagnostics_.list().size(), 1U);
}

// As some write them: on one line, with tabs, with escapes.
TEST_F(HfTest, JsonIsReadHoweverItIsWritten) {
  std::string line = contents("gpt2");
  line.erase(std::remove_if(line.begin(), line.end(), [](char c) { return c == ' ' || c == '\n'; }), line.end());
  EXPECT_EQ(text(line).layers, 12);
  expect_sound();
  std::string tabs = contents("gpt2");
  for (std::size_t at = 0; (at = tabs.find("\n  ", at)) != std::string::npos;) tabs.replace(at, 3, "\n\t");
  EXPECT_EQ(text(tabs).layers, 12);
  expect_sound();
  EXPECT_EQ(changed("gpt2", "\"n_ctx\"", R"("prefix": "\u0041\n\"\/<|x|> # no comment", "n_ctx")").layers, 12);
  expect_sound();
}

// The path is relative to the scenario's file, or else to the working directory; a folder holds its config.json.
TEST_F(HfTest, AScenarioNamesTheFileBesideIt) {
  const std::string scenario = scenario_file("rehearse: 1\nmodel: {hf: beside}\n");
  const auto folder = std::filesystem::path(scenario).parent_path() / "beside";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << contents("gpt2");
  EXPECT_EQ(read_scenario(scenario, {}, REHEARSE_SOURCE_DIR).model.hidden, 768);
  const std::string preset = "rehearse: 1\nmodel: llama2-7b\n";
  EXPECT_EQ(read(preset, {"model.hf=" + kFiles + "gpt2.json", "model.layers=3"}).model.layers, 3);
  EXPECT_EQ(read(preset, {"model.hf=" + kFiles + "gpt2.json"}).model.hidden, 768);
  // Another preset, and then one of its keys.
  EXPECT_EQ(read(preset, {"model=gpt2-small", "model.layers=3"}).model.hidden, 768);
  EXPECT_EQ(problems(preset, {"model.hf=none.json"}),
            std::vector<std::string>{"--set model.hf: none.json cannot be read: No such file or directory"});
}

const std::string kWindowed =
    "rehearse: 1\nmodel: {family: llama, layers: 4, hidden: 64, heads: 4, ffn_hidden: 96, vocab: 100, max_seq_len: "
    "128, sliding_window: 32}\ncluster: {topology: dgx-a100, gpus: 2}\n";

TEST(SlidingWindow, IsOfAllLayersOrOfAllButEveryManyTh) {
  const model::Model all = read(kWindowed).model;
  for (std::int64_t layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(all.window(layer, 128), 32);
    EXPECT_EQ(all.window(layer, 33), 32);
    EXPECT_EQ(all.window(layer, 32), 0) << "every token sees all before it";
  }
  EXPECT_TRUE(all.windowed(33));
  EXPECT_FALSE(all.windowed(32));
  const model::Model second = read(kWindowed, {"model.full_attention_every=2"}).model;
  for (std::int64_t layer = 0; layer < 4; ++layer) EXPECT_EQ(second.window(layer, 128), layer % 2 == 0 ? 32 : 0);
  const model::Model sixth = read(kWindowed, {"model.full_attention_every=6", "model.layers=26"}).model;  // Gemma 3 1B
  for (std::int64_t layer = 0; layer < 26; ++layer)
    EXPECT_EQ(sixth.window(layer, 128) == 0, layer == 5 || layer == 11 || layer == 17 || layer == 23) << layer;
}

TEST(SlidingWindow, OfAllLayersIsTheLengthUnlessASequenceIsLonger) {
  EXPECT_EQ(read(kWindowed).training.seq_len, 32);
  EXPECT_EQ(read(kWindowed, {"training.seq_len=128"}).training.seq_len, 128);
  EXPECT_EQ(read(kWindowed, {"model.full_attention_every=2"}).training.seq_len, 128);
}

using Found = std::vector<std::string>;

TEST(SlidingWindow, WhatMakesNoSenseIsRefused) {
  const auto with = [](const std::string& window) {
    std::string text = kWindowed;
    return problems(text.replace(text.find("sliding_window: 32"), 18, window));
  };
  EXPECT_EQ(with("full_attention_every: 2"),
            (Found{"2:125 model.full_attention_every: full_attention_every = 2 says which layers have no window, but "
                   "sliding_window = 0 gives none to any (sliding_window: 4096, or leave it out)"}));
  EXPECT_EQ(with("sliding_window: 32, full_attention_every: 1"),
            (Found{"2:145 model.full_attention_every: full_attention_every = 1 leaves no layer for sliding_window = 32 "
                   "(2 for every second layer, or sliding_window: 0)"}));
  EXPECT_EQ(with("sliding_window: -1").size(), 1U);
  EXPECT_EQ(with("sliding_window: 4k").size(), 1U);
  EXPECT_EQ(with("sliding_window: 4096"), Found{}) << "longer than any sequence: not felt";
}

TEST(SlidingWindow, IsNotSplitOverARing) {
  const auto split = [](const std::string& plan, std::vector<std::string> more) {
    more.emplace_back("training.seq_len=64");
    return problems(kWindowed + "plan: {context: 2" + plan + "}\n", more);
  };
  EXPECT_EQ(split(", context_kind: all_to_all", {}), Found{});
  EXPECT_EQ(split("", {"model.sliding_window=64"}), Found{});
  EXPECT_EQ(split("", {}),
            (Found{"4:17 plan.context: context_kind: ring gives each rank as much of a causal mask, not of "
                   "sliding_window = 32 below seq_len = 64 (context_kind: all_gather or all_to_all, or "
                   "model.sliding_window: 0)"}));
  EXPECT_EQ(split(", context_kind: all_gather", {"model.full_attention_every=2"}), Found{});
}

}  // namespace
}  // namespace rehearse::plan
