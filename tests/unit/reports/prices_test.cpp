// Prices of GPU-hours: the shipped file, a user's own, and what is wrong in one.
#include "reports/prices.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "sim/base/diagnostics.h"

namespace rehearse::reports {
namespace {

const std::string kHeading = "cluster,instance,usd_per_gpu_hour,date,source\n";

std::string price_problem(const std::string& rows) {
  try {
    Prices::from_text("prices.csv", kHeading + rows);
  } catch (const InputError& error) {
    return error.diagnostics().front().message + " at " + std::to_string(error.diagnostics().front().line);
  }
  return "";
}

TEST(Prices, AreOfAClusterByNameOrPath) {
  const Prices prices = Prices::from_text("p", "# mine\n" + kHeading + "aws-p5,p5,4.5,2026-11-24,an offer\n");
  EXPECT_EQ(prices.of("aws-p5").usd, 4.5);
  EXPECT_EQ(prices.of("/home/me/aws-p5.yaml").usd, 4.5);
  EXPECT_EQ(prices.of("aws-p5").text(), "$4.5 a GPU-hour (p5, 2026-11-24)");
  EXPECT_FALSE(prices.of("dgx-a100"));
}

TEST(Prices, OfWrongRowsSayWhereAndWhy) {
  EXPECT_NE(price_problem("a,b,free,2026-01,s\n"), "");
  EXPECT_NE(price_problem("a,b,-1,2026-01,s\n"), "");
  EXPECT_NE(price_problem("a,b,1,yesterday,s\n").find("YYYY-MM or YYYY-MM-DD at 2"), std::string::npos);
  EXPECT_NE(price_problem("a,b,1,2026-01,s\na,b,2,2026-01,s\n").find("has a row above at 3"), std::string::npos);
  EXPECT_EQ(price_problem("a,b,1,2026-01,s\n"), "");
}

TEST(Prices, ShippedOnesAreOfShippedClusters) {
  const std::filesystem::path folder = std::filesystem::path(REHEARSE_SOURCE_DIR) / "topologies";
  const Prices prices = Prices::from_file((folder / "prices.csv").string());
  int priced = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    priced += prices.of(entry.path().string()) && entry.path().extension() == ".yaml" ? 1 : 0;
  EXPECT_EQ(priced, 7);  // each row of the file
}

}  // namespace
}  // namespace rehearse::reports
