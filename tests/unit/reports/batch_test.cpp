// The effective batch in words and numbers, and every table that names it.
#include "reports/batch.h"

#include <gtest/gtest.h>

#include "reports/difference.h"
#include "reports/html/words.h"
#include "reports/ledgers/local_ledger.h"
#include "reports/tables.h"
#include "stored.h"
#include "tests/support/text.h"

namespace rehearse::reports {
namespace {

constexpr char kWords[] = "8 sequences = micro-batch 1 x 4 micro-batches x data 2; 1,024 tokens a step";

// Lines that were wrapped in one piece again.
std::string unwrapped(const std::string& text) {
  std::string out;
  for (const char c : text)
    if ((c != ' ' && c != '\n') || (!out.empty() && out.back() != ' ')) out += c == '\n' ? ' ' : c;
  return out;
}

TEST(Batch, IsMicroBatchTimesMicroBatchesTimesReplicas) {
  const Batch batch = batch_of(stored().result);
  EXPECT_EQ(batch.global(), 8);
  EXPECT_EQ(batch.units(), 1024);
  EXPECT_EQ(batch_text(batch), kWords);
  EXPECT_EQ(batch_text({3, 1, 1, 0}), "3 samples a step = micro-batch 3 x 1 micro-batch x data 1");
}

TEST(Batch, IsNotGuessedWhereTheKeysDoNotSay) {
  result::Result r = stored().result;
  r.scenario["plan.data"] = "two";
  EXPECT_EQ(batch_of(r).global(), 0);
  EXPECT_EQ(batch_text(batch_of(r)), "");
  for (const char* key : {"plan.data", "plan.micro_batch", "plan.micro_batches"})
    r.scenario[key] = "9223372036854775807";  // an edited file
  EXPECT_EQ(batch_of(r).global(), 0);
}

TEST(Batch, OfReinforcementLearningIsOfAStepsUpdates) {
  result::Result r = stored().result;
  r.reinforcement.known = true, r.reinforcement.prompts = 512, r.reinforcement.samples = 16;
  r.reinforcement.updates = 4, r.scenario["training.global_batch"] = "2048";
  EXPECT_EQ(batch_text(r), "8,192 sequences a step = 512 prompts x 16 samples, in 4 updates of 2,048");
}

TEST(Batch, StandsInEveryTableThatNamesAPlan) {
  const auto simulated = stored(), measured = stored("measured");
  EXPECT_TRUE(has(unwrapped(summary(simulated.result)), std::string("batch: ") + kWords)) << summary(simulated.result);
  EXPECT_TRUE(has(unwrapped(comparison({simulated.result})), kWords));
  const Difference d = difference(simulated, measured);
  const std::string table = unwrapped(difference_table(d));
  EXPECT_TRUE(has(table, kWords)) << table;
  EXPECT_NE(table.find(kWords), table.rfind(kWords)) << "of both";
  EXPECT_TRUE(has(difference_json(d), "\"global_batch\": 8,\n    \"tokens_per_step\": 1024")) << difference_json(d);
  EXPECT_TRUE(has(html::asked(simulated.result)[0], "(micro-batch 1 x 4 micro-batches x data 2; 1,024 tokens)"));
  const LocalRow row = local_row("a", simulated.result, measured.result, false);
  EXPECT_TRUE(has(local_ledger_csv({row}), "\na,8,false,8,1,4,2,1024,")) << local_ledger_csv({row});
  EXPECT_TRUE(has(local_ledger_json({row}), "\"tokens_per_step\": 1024"));
  EXPECT_TRUE(has(local_ledger_table({row}), "batch: sequences or samples a step"));
}

}  // namespace
}  // namespace rehearse::reports
