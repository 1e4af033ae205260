// Estimates against what their sources print.
#include "reports/estimate.h"

#include <gtest/gtest.h>

#include <sstream>

#include "reports/text.h"

namespace rehearse::reports {
namespace {

EstimateRequest bare(double parameters) {
  EstimateRequest r;
  r.name = "bare";
  r.parameters = parameters;
  return r;
}

TEST(Estimate, SizesAreNumbersWithALetter) {
  EXPECT_EQ(parse_model_size("175B"), 175e9);
  EXPECT_EQ(parse_model_size("1.3b"), 1.3e9);
  EXPECT_EQ(parse_model_size("540 B"), 540e9);
  EXPECT_EQ(parse_model_size("125M"), 125e6);
  EXPECT_EQ(parse_model_size("1.5T"), 1.5e12);
  for (const char* wrong : {"", "B", "175", "175BB", "-1B", "nanB", "infB", "1e9B", "0B", "1  B", "9999999T", "175B x"})
    EXPECT_EQ(parse_model_size(wrong), std::nullopt) << wrong;
}

TEST(Estimate, ChinchillaOfSeventyBillion) {
  // Hoffmann et al. 2022, table 1 and 3: 70B parameters, 1.4T tokens; 6 x 70e9 x 1.4e12 = 5.88e23 FLOPs.
  const Estimate e = estimate_of(bare(70e9));
  EXPECT_DOUBLE_EQ(e.tokens, 1.4e12);
  EXPECT_DOUBLE_EQ(e.flops, 5.88e23);
}

TEST(Estimate, GpusAreStatesOverEightyPercentOfEightyGigabytes) {
  EXPECT_EQ(estimate_of(bare(175e9)).needed, 44);   // 2,800 GB / 64 GB = 43.75
  EXPECT_EQ(estimate_of(bare(540e9)).needed, 135);  // 8,640 GB / 64 GB = 135 exactly
  EXPECT_EQ(estimate_of(bare(540e9 + 1)).needed, 136);
  EXPECT_EQ(estimate_of(bare(4e9)).needed, 1);
  EstimateRequest small = bare(4e9);
  small.memory = Bytes(40'000'000'000);
  EXPECT_EQ(estimate_of(small).needed, 2);
}

TEST(Estimate, ZeroStatesAreThoseOfThePaper) {
  // Rajbhandari et al. 2020, table 1, in GB: 7.5B, 128B and 1T parameters under P_os, P_os+g and P_os+g+p.
  struct Row {
    double parameters;
    int data;
    double os, os_g, os_g_p, within;
  };
  for (const Row& r :
       {Row{7.5e9, 1, 120, 120, 120, 0.5}, Row{7.5e9, 4, 52.5, 41.3, 30, 0.06}, Row{7.5e9, 16, 35.6, 21.6, 7.5, 0.06},
        Row{7.5e9, 64, 31.4, 16.6, 1.88, 0.06}, Row{128e9, 64, 536, 284, 32, 0.5}, Row{128e9, 1024, 513, 257, 2, 1},
        Row{1e12, 64, 4187, 2218, 250, 1.5}, Row{1e12, 1024, 4011, 2013, 15.6, 1}}) {
    EXPECT_NEAR(zero_state_bytes(r.parameters, 1, r.data, 1) / 1e9, r.os, r.within) << r.data;
    EXPECT_NEAR(zero_state_bytes(r.parameters, 1, r.data, 2) / 1e9, r.os_g, r.within) << r.data;
    EXPECT_NEAR(zero_state_bytes(r.parameters, 1, r.data, 3) / 1e9, r.os_g_p, r.within) << r.data;
  }
  EXPECT_DOUBLE_EQ(zero_state_bytes(8e9, 8, 4, 0), 16e9) << "replicas share nothing";
}

TEST(Estimate, EverySplitOfTheGpusIsARow) {
  EstimateRequest r = bare(175e9);
  r.gpus = 64;
  const Estimate e = estimate_of(r);
  ASSERT_EQ(e.splits.size(), 7u);
  for (const EstimateSplit& s : e.splits) {
    EXPECT_EQ(s.tensor * s.pipeline * s.data, 64);
    EXPECT_DOUBLE_EQ(s.bytes[3], 2.8e12 / 64) << "whatever is not split over layers is sharded";
  }
  EXPECT_EQ(e.splits[4].tensor, 8);
  EXPECT_EQ(e.splits[4].pipeline, 2);
  r.gpus = 24;
  EXPECT_EQ(estimate_of(r).splits.size(), 4u) << "1, 2, 4 and 8 divide 24";
}

model::Model small_gpt() {
  model::Model m;
  m.name = "small";
  m.layers = 4;
  m.hidden = 512;
  m.heads = m.kv_heads = 4;
  m.head_dim = 128;
  m.ffn_hidden = 2048;
  m.vocab = 32000;
  m.max_seq_len = 1024;
  return m;
}

TEST(Estimate, AModelsHeadsAndLayersBoundItsSplits) {
  EstimateRequest r;
  r.name = "small";
  r.model = small_gpt();
  r.parameters = static_cast<double>(model::parameter_count(*r.model));
  r.seq_len = 1024;
  r.gpus = 64;
  const Estimate e = estimate_of(r);
  ASSERT_EQ(e.splits.size(), 5u) << "4 ways over heads, up to 4 stages";
  EXPECT_EQ(e.splits.back().tensor, 4);
  EXPECT_EQ(e.splits.back().pipeline, 4);
  EXPECT_DOUBLE_EQ(e.checkpoint_bytes, 2.0 * 1024 * 512 * 4);
  EXPECT_DOUBLE_EQ(e.flops_exact, model::model_flops(*r.model, 1, 1024) * e.tokens / 1024);
  EXPECT_DOUBLE_EQ(e.flops, 6 * r.parameters * 20 * r.parameters);
}

TEST(Estimate, TimeIsFlopsOverWhatOfThePeakIsUsed) {
  EstimateRequest r = bare(1e9);
  r.tokens = 2e10;
  r.peak = FlopRate(1e15);
  r.mfu_percent = 50;
  EXPECT_DOUBLE_EQ(estimate_of(r).seconds, 6 * 1e9 * 2e10 / 5e14);
  r.peak = FlopRate(0);
  EXPECT_EQ(estimate_of(r).seconds, 0);
}

TEST(Estimate, IsReadableAtEightyColumns) {
  for (const double parameters : {1e6, 7e9, 175e9, 540e9, 1e15, 1e18}) {
    EstimateRequest r = bare(parameters);
    r.peak = FlopRate(312e12);
    r.device = "a100-sxm-80g";
    std::istringstream lines(estimate_text(estimate_of(r)));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), kWidth) << line;
  }
}

}  // namespace
}  // namespace rehearse::reports
