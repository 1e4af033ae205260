// The text that Prometheus reads: what has a type and a help line, escaped labels, numbers that are none.
#include "reports/metrics.h"

#include <gtest/gtest.h>

#include <limits>

namespace rehearse::reports {
namespace {

TEST(Metrics, AreInPrometheusFormat) {
  const std::string text = prometheus_text({.scenario = "GPT, tiny",
                                            .step = 3,
                                            .steps = 20,
                                            .ranks = 4,
                                            .loss = 5.5,
                                            .step_s = 0.25,
                                            .examples_per_s = 32,
                                            .tokens_per_s = 2048});
  EXPECT_TRUE(
      text.starts_with("# HELP rehearse_steps_total Optimizer steps done.\n# TYPE rehearse_steps_total counter\n"
                       "rehearse_steps_total{scenario=\"GPT, tiny\"} 3\n"))
      << text;
  EXPECT_NE(text.find("\nrehearse_loss{scenario=\"GPT, tiny\"} 5.5\n"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("rehearse_tokens_per_second{scenario=\"GPT, tiny\"} 2048\n")) << text;
}

TEST(Metrics, OfModulesLossesAreApart) {
  const std::string text =
      prometheus_text({.scenario = "V3", .loss = 6.5, .loss_parts = {{"model", 5}, {"mtp1", 5.25}}});
  EXPECT_NE(text.find("\nrehearse_loss{scenario=\"V3\"} 6.5\n# HELP rehearse_loss_part "), std::string::npos) << text;
  EXPECT_NE(text.find("\n# TYPE rehearse_loss_part gauge\nrehearse_loss_part{scenario=\"V3\",part=\"model\"} 5\n"
                      "rehearse_loss_part{scenario=\"V3\",part=\"mtp1\"} 5.25\n"),
            std::string::npos)
      << text;
}

// Buckets count all that is no older.
TEST(Metrics, StalenessIsAHistogram) {
  const std::string text = prometheus_text({.scenario = "S", .staleness = {3, 0, 5}});
  for (const char* line :
       {"# TYPE rehearse_staleness_updates histogram", "rehearse_staleness_updates_bucket{scenario=\"S\",le=\"0\"} 3",
        "rehearse_staleness_updates_bucket{scenario=\"S\",le=\"1\"} 3",
        "rehearse_staleness_updates_bucket{scenario=\"S\",le=\"2\"} 8",
        "rehearse_staleness_updates_bucket{scenario=\"S\",le=\"+Inf\"} 8",
        "rehearse_staleness_updates_sum{scenario=\"S\"} 10", "rehearse_staleness_updates_count{scenario=\"S\"} 8"})
    EXPECT_NE(text.find("\n" + std::string(line) + "\n"), std::string::npos) << line << "\n" << text;
  EXPECT_EQ(prometheus_text({.scenario = "S"}).find("staleness"), std::string::npos);
}

// After the first step, within which ranks start.
TEST(Metrics, OfNoWholeStepThereAreNoRates) {
  const std::string text = prometheus_text({.scenario = "GPT", .step = 1, .steps = 20, .loss = 5.5});
  EXPECT_NE(text.find("\nrehearse_loss{scenario=\"GPT\"} 5.5\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("second"), std::string::npos) << text;
}

TEST(Metrics, EscapeLabelsAndSayWhatIsNoNumber) {
  const std::string text =
      prometheus_text({.scenario = "a \"b\"\\c\nd", .loss = std::numeric_limits<double>::quiet_NaN()});
  EXPECT_NE(text.find("rehearse_loss{scenario=\"a \\\"b\\\"\\\\c\\nd\"} NaN\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("tokens_per_second"), std::string::npos) << "a model that reads no text";
}

}  // namespace
}  // namespace rehearse::reports
