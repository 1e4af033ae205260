// The report page: its sentences, that nothing of a scenario becomes markup, that it fetches nothing, and the page
// without a script.
#include "reports/html/html.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>

#include "reports/html/errors.h"
#include "reports/html/figures.h"
#include "reports/html/history.h"
#include "reports/html/plan.h"
#include "reports/html/plan_links.h"
#include "reports/html/text.h"
#include "reports/html/words.h"
#include "stored.h"
#include "tests/support/text.h"

namespace rehearse::reports {
namespace {

using html::answered;
using html::asked;

std::size_t times(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

std::string static_page(const std::vector<result::StoredResult>& runs) {
  HtmlOptions options;
  options.script = false;
  return html_page(runs, options);
}

TEST(HtmlWords, SayWhatWasAsked) {
  const auto sentences = asked(stored().result);
  ASSERT_EQ(sentences.size(), 2u);
  EXPECT_EQ(
      sentences[0],
      "Train gpt-small (1.5 billion parameters, sequences of 128 tokens) on 8 a100 GPUs (two nodes), in bf16 with "
      "adamw, 8 sequences a step (micro-batch 1 x 4 micro-batches x data 2; 1,024 tokens).");
  EXPECT_EQ(
      sentences[1],
      "Split every matrix over 2 ranks; the layers over 2 stages (1F1B: one forward, one backward; 4 micro-batches "
      "of 1); the batch over 2 replicas, optimizer state split over them (ZeRO-1); activations are kept.");
}

TEST(HtmlWords, SayWhatIsOnTheHost) {
  result::Result r = stored().result;
  r.scenario["plan.offload_optimizer"] = r.scenario["plan.offload_activations"] = "true";
  r.host_bytes = 164'500'000'000, r.host_capacity = 1'500'000'000'000;
  EXPECT_TRUE(asked(r)[1].ends_with(
      "activations are kept; on the host: the optimizer's states and step, inputs of recomputed layers."))
      << asked(r)[1];
  const std::string answer = answered(r, {})[1];
  EXPECT_NE(answer.find(", 164.5 GB of a host's 1.5 TB, and what limits it is"), std::string::npos) << answer;
}

TEST(HtmlWords, SayWhatIsTrainedBesideFrozenParameters) {
  result::Result r = stored().result;
  r.scenario["model.trainable_parameters"] = "36000000";
  r.scenario["training.lora_rank"] = "16";
  EXPECT_TRUE(asked(r)[0].starts_with(
      "Train gpt-small (1.5 billion parameters, of which adapters of rank 16, 36 million, are trained, sequences of"))
      << asked(r)[0];
}

TEST(HtmlWords, ANameWithoutKeysIsStillASentence) {
  result::Result r;
  r.ranks = 1;
  EXPECT_EQ(asked(r)[0], "Train a model on 1 GPU.");
  r.scenario["cluster.cores"] = "4";  // of a host that its ranks share
  EXPECT_EQ(asked(r)[0], "Train a model on 1 CPU rank.");
  EXPECT_EQ(asked(r)[1], "Nothing is split.");
}

TEST(HtmlWords, AnswerInThreeSentences) {
  HtmlOptions options;
  options.tokens = 864e9;  // ten days at a million a second
  options.price_per_hour = 2;
  const auto sentences = answered(stored().result, options);
  ASSERT_EQ(sentences.size(), 3u);
  EXPECT_EQ(
      sentences[0],
      "A step takes 10 us, 50.0% of the peak (MFU), 1,000,000 tokens a second; 864 billion tokens take 10 days and "
      "1,920 GPU-hours, 3,840 at 2 an hour.");
  EXPECT_TRUE(has(sentences[1],
                  "It fits in memory (the fullest stage, 0, needs 15 GB of 80 GB a GPU), and what limits "
                  "it is the pipeline bubble: 20.0% of the step"))
      << sentences[1];
  EXPECT_EQ(sentences[2],
            "Of the simulated busy time 50.0% rests on exactly measured shapes, 25.0% on interpolation, 25.0% on "
            "extrapolation; at the ends of the costs' error intervals a step takes 9 us and 12 us.");
}

TEST(HtmlWords, SayWhatTheAcceleratorsTake) {
  HtmlOptions options;
  options.tokens = 864e9;
  auto s = stored();
  // 8 GPUs for 10 us at 300 W; 10 tokens a step.
  s.result.energy = {true, 0.008, 0.012, 0.003, 0.001, 0.02, 0.03, 0.015, 400, 1};
  EXPECT_TRUE(
      answered(s.result, options)[0].ends_with(" The GPUs draw 300 W each on average, of 400 W at most: 0.024 J a "
                                               "step, 576 kWh for the 864 billion tokens."))
      << answered(s.result, options)[0];
}

TEST(HtmlWords, APlanThatDoesNotFitSaysSoFirst) {
  auto s = stored();
  s.result.memory_fits = false;
  s.result.memory_capacity = 10'000'000'000;
  EXPECT_TRUE(answered(s.result, {})[1].starts_with("It does not fit in memory, and the step time is as if it did: "));
  EXPECT_TRUE(has(static_page({s}), "<article class=\"misfit\">"));
}

TEST(HtmlWords, AMeasuredRunIsNoPlanForBillionsOfTokens) {
  const auto sentences = answered(stored("measured").result, {});
  EXPECT_EQ(sentences[0], "A step took 10 us, 50.0% of the peak (MFU), 1,000,000 tokens a second.");
  EXPECT_EQ(sentences[2], "This was measured, not simulated: the median of 2 steps; they took between 9 us and 12 us.");
}

TEST(HtmlWords, LabelsTellRunsApart) {
  EXPECT_EQ(html::labels({stored()}), std::vector<std::string>{"small"});
  EXPECT_EQ(html::labels({stored(), stored("measured")}),
            (std::vector<std::string>{"small, simulated", "small, measured"}));
  EXPECT_EQ(html::labels({stored(), stored()}), (std::vector<std::string>{"small, simulated 1", "small, simulated 2"}));
  std::vector<result::StoredResult> plans = {stored(), stored("measured"), stored()};
  plans[0].directory = "out/ddp/simulated";
  plans[1].directory = "out/ddp/measured/";
  plans[2].directory = "out/zero3";
  EXPECT_EQ(html::labels(plans), (std::vector<std::string>{"ddp, simulated", "ddp, measured", "zero3"}));
}

TEST(HtmlPage, SeveralPlansBeginWithOneTable) {
  std::vector<result::StoredResult> runs = {stored(), stored(), stored()};
  const char* directories[] = {"a", "b<i>", "c"};
  for (std::size_t i = 0; i < runs.size(); ++i) runs[i].directory = directories[i];
  runs[1].result.step_time_ps /= 2;  // twice as fast, but half of it bubble
  runs[1].result.tokens_per_s *= 2;
  runs[2].result.tokens_per_s *= 4;  // faster than both, and does not fit
  runs[2].result.memory_fits = false;
  runs[2].result.memory_capacity = 14'000'000'000;
  const std::string page = static_page(runs);
  const std::size_t table = page.find("<table class=\"plans\">");
  ASSERT_NE(table, std::string::npos);
  EXPECT_LT(table, page.find("<div class=\"cards\">")) << "before the cards";
  const std::string text = page.substr(table, page.find("</table>", table) - table);
  for (const char* name : {"plan", "GPUs", "batch", "step", "tokens a second", "MFU", "peak memory", "bubble",
                           "exposed comm.", "days", "GPU-hours", "fits"})
    EXPECT_TRUE(has(text, fmt::format("<th scope=\"col\">{}</th>", name))) << name;
  EXPECT_EQ(times(text, "<tr"), 4u);
  EXPECT_TRUE(has(text, "b&lt;i&gt; <b title=\"fastest\">★</b>")) << "of those that fit";
  EXPECT_EQ(times(text, "★"), 1u);
  EXPECT_TRUE(has(text, "<td class=\"best\">2M</td>")) << text;
  EXPECT_TRUE(has(text, "<td>15 GB of 80 GB</td>")) << text;
  EXPECT_TRUE(has(text, "<td>15 GB of 14 GB</td>")) << text;
  EXPECT_TRUE(has(text, "<tr class=\"misfit\"><th scope=\"row\">c</th>")) << text;
  EXPECT_FALSE(has(text, "<td class=\"best\">4M</td>")) << "a plan that does not fit is no best";
  EXPECT_TRUE(has(page, "Days and GPU-hours are for 300 billion tokens."));
  EXPECT_FALSE(has(static_page({stored()}), "class=\"plans\"")) << "one plan has its card";
}

TEST(HtmlPage, ATableOfEqualPlansMarksNone) {
  const std::string page = static_page({stored(), stored()});
  EXPECT_FALSE(has(page, "class=\"best\"") || has(page, "★"));
}

TEST(HtmlPage, APlansNotesStandInItsCard) {
  auto s = stored();
  s.result.notes = {{"uneven_stages", "Stages are <uneven>."}};
  EXPECT_TRUE(has(static_page({s}), "<p>Note: Stages are &lt;uneven&gt;.</p>"));
}

TEST(HtmlText, EscapesWhatCouldBeMarkup) {
  EXPECT_EQ(html::escape("a<b>&\"c\"'d'"), "a&lt;b&gt;&amp;&quot;c&quot;&#39;d&#39;");
  EXPECT_EQ(html::escape(std::string("\x1b[2J\0x", 6)), "?[2J?x");
  EXPECT_EQ(html::escape("a\u009bb\u202ec\u2066d\n"), "a?b?c?d\n") << "C1, and what turns the direction of text";
  EXPECT_EQ(html::escape("µ – ≠"), "µ – ≠");
  EXPECT_EQ(html::coordinate(12.5), "12.5");
  EXPECT_EQ(html::coordinate(3.0), "3");
  EXPECT_EQ(html::coordinate(-0.001), "0");
}

TEST(HtmlPage, AHostileNameStaysText) {
  auto s = stored();
  const std::string evil = "</script></title><script>alert(\"1\")</script><img src='http://x/'>";
  s.result.scenario_name = s.result.scenario_file = evil;
  s.result.stages[0].where = evil;
  s.result.limited_by = evil;
  for (auto& [key, value] : s.result.scenario)
    if (key.starts_with("model") || key.starts_with("cluster")) value = evil;
  for (result::OpText& text : s.texts) text.op = text.shape = text.kind = text.stream = text.phase = evil;
  for (const bool script : {false, true}) {
    HtmlOptions options;
    options.script = script;
    const std::string page = html_page({s, s}, options);
    EXPECT_FALSE(has(page, "<script>alert")) << script;
    EXPECT_FALSE(has(page, "<img")) << script;
    EXPECT_TRUE(has(page, "&lt;script&gt;alert(&quot;1&quot;)")) << script;
    EXPECT_EQ(times(page, "</html>"), 1u);
  }
}

TEST(HtmlPage, HasItsPartsInOrder) {
  auto measured = stored("measured");
  measured.result.loss = {3, 2};
  const std::string page = static_page({stored(), measured});
  std::size_t before = 0;
  for (const char* id : {"asked", "answer", "breakdown", "memory", "plan", "timelines", "errors", "loss"}) {
    const std::size_t at = page.find(std::string("<section id=\"") + id + "\"");
    ASSERT_NE(at, std::string::npos) << id;
    EXPECT_GT(at, before) << id;
    before = at;
  }
  EXPECT_FALSE(has(static_page({stored()}), "id=\"errors\"")) << "one run has nothing to be compared with";
  EXPECT_FALSE(has(static_page({stored()}), "id=\"loss\""));
}

TEST(HtmlPage, WithoutAScriptItHasNoneAndItsFiguresAreThere) {
  const std::string page = static_page({stored()});
  EXPECT_FALSE(has(page, "<script"));
  EXPECT_TRUE(has(page, "This page has no script"));
  EXPECT_TRUE(has(page, "aria-label=\"Timeline of the compute stream of 2 stages\""));
  EXPECT_TRUE(has(page, "idle 20.0%")) << "stage 0 computes 8 of 10 us";
  EXPECT_TRUE(has(page, "idle 30.0%")) << "stage 1 computes 7 of 10 us";
}

TEST(HtmlPage, WithAScriptTheStaticFiguresAreStillThere) {
  if (!has_page_script()) GTEST_SKIP() << "built without the page's script";
  const std::string page = html_page({stored()}, {});
  EXPECT_EQ(times(page, "</script>"), 2u) << "the payload and the script, which does not end itself";
  EXPECT_TRUE(has(page, "aria-label=\"Timeline of the compute stream of 2 stages\""));
}

TEST(HtmlPage, NamesNothingToFetch) {
  static const std::regex resource(R"((src|href)\s*=|url\(|@import|https?:)");
  for (const bool script : {false, true}) {
    HtmlOptions options;
    options.script = script;
    const std::string page = html_page({stored(), stored("measured")}, options);
    const std::size_t code =
        page.find("<script>");  // the bundle's own words, as "src=" in minified code, fetch nothing
    const std::string markup = page.substr(0, page.find("<script"));
    EXPECT_FALSE(std::regex_search(markup, resource));
    if (code != std::string::npos) {
      EXPECT_FALSE(has(page.substr(code), "http"));
    }
    EXPECT_TRUE(has(page, "default-src 'none'"));
  }
}

TEST(HtmlFigures, TheBreakdownsBarsAreOnOneScale) {
  auto half = stored();
  half.result.step_time_ps = 5 * kMicrosecond;
  half.result.breakdown_ps = {5 * kMicrosecond, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  const std::string figure = html::breakdown_figure({stored(), half}, {"a", "b"});
  EXPECT_TRUE(has(figure, "x=\"210\" y=\"0\" width=\"539\"")) << "7 of 10 us of 770\n" << figure;
  EXPECT_TRUE(has(figure, "x=\"210\" y=\"40\" width=\"385\"")) << "5 of 10 us\n" << figure;
  EXPECT_TRUE(has(figure, "<title>bubble: 2 us, 20.0%</title><rect class=\"bubble\"")) << figure;
}

TEST(HtmlFigures, MemoryIsDrawnAgainstTheCapacity) {
  const std::string figure = html::memory_figure(stored().result);
  EXPECT_TRUE(has(figure, "capacity 80 GB"));
  EXPECT_TRUE(has(figure,
                  "<title>parameters: 10 GB</title><rect class=\"m-parameters\" x=\"210\" y=\"22\" "
                  "width=\"88.75\""))
      << "10 of 80 GB of 710\n"
      << figure;
  auto tiny = stored().result;
  tiny.memory_capacity = 1'000'000'000'000'000;
  EXPECT_TRUE(has(html::memory_figure(tiny), "far beyond this scale"));
}

TEST(HtmlFigures, LossesThatAreNoNumbersAreLeftOut) {
  auto s = stored("measured");
  EXPECT_EQ(html::loss_figure({s}, {"a"}), "");
  s.result.loss = {4, std::numeric_limits<double>::quiet_NaN(), 2};
  const std::string figure = html::loss_figure({s}, {"a"});
  EXPECT_TRUE(has(figure, "points=\"60,10 1080,210 \"")) << figure;
  EXPECT_FALSE(has(figure, "Loss against time"));
  // By the ends of steps, not by so many medians: the second of three ends after a quarter of the time.
  s.result.loss = {4, 3, 2};
  s.history.loss = {4, 3, 2}, s.history.step_ps.assign(3, kMicrosecond);
  s.history.end_ps = {0, kMicrosecond, 4 * kMicrosecond};
  const std::string both = html::loss_figure({s}, {"a"});
  EXPECT_TRUE(has(both, "points=\"60,10 570,110 1080,210 \"")) << both;
  EXPECT_TRUE(has(both, "points=\"60,10 315,110 1080,210 \"")) << both;
}

// Bytes of a step by group, the legs of messages by direction, and the links that carry them.
TEST(HtmlPlan, WhatJoinsTheRanksHasBytesAndLinks) {
  auto s = stored();
  const auto moved = [&s](int stage, const char* kind, const char* shape, const char* group, std::int64_t bytes) {
    s.texts.push_back({stage, "body", kind, group, kind, "forward", shape, "", group, 2, bytes, 0, {}, {}});
    s.ops.push_back({stage == 0 ? 0 : 4, 1, 2, 0, static_cast<std::uint32_t>(s.texts.size() - 1), 0, 1, 0});
  };
  moved(0, "all_reduce", "elements=1 f32", "tensor", 2'000'000);
  moved(0, "all_reduce", "elements=1 f32", "tensor", 3'000'000);
  moved(0, "reduce_scatter", "elements=1 f32", "data", 7'000'000);
  moved(0, "send", "send pipeline+1 elements=1 bf16", "pipeline", 4'000);
  moved(0, "exchange of send and receive", "send pipeline+1 receive pipeline+1 elements=1", "pipeline", 2'000);
  moved(1, "send", "send pipeline-1 elements=1 bf16", "pipeline", 6'000);
  result::LinkUse nic;
  nic.kind = "nic", nic.users = {{"data reduce_scatter", 1}, {"pipeline send", 1}};
  s.result.links.known = true, s.result.links.busiest = {nic};
  const auto grid = html::plan_grid(s.result);
  ASSERT_TRUE(grid);
  const std::string figure = html::plan_links_figure(s, *grid);
  for (const char* words : {"Data: 2 replicas", "Model: each layer over 2 ranks", "Pipeline: 2 stages",
                            "all-reduce of 5 MB", "reduce-scatter of 7 MB", "5 kB down, 6 kB up", "over nic"})
    EXPECT_TRUE(has(figure, words)) << words << "\n" << figure;
  s.ops.clear();
  EXPECT_EQ(html::plan_links_figure(s, *grid), "");
}

// Of long runs two steps are a point, at the second of them; a resumed run's times are since its own first step.
TEST(HtmlHistory, EndsAtTheLastStepAndSaysFromWhichOnItCounts) {
  auto s = stored("measured");
  s.history.first_step = 101;
  s.history.loss.assign(1500, 2);
  s.history.step_ps.assign(1500, kMicrosecond);
  for (std::int64_t step = 1; step <= 1500; ++step) s.history.end_ps.push_back(step * kMicrosecond);
  s.history.computed = {kMicrosecond}, s.history.slowest = {1500};
  const std::string late = html::history_section({s}, {"a"}, {});
  EXPECT_TRUE(has(late, ">step 102<") && has(late, ">step 1600<")) << late;
  EXPECT_TRUE(has(late, " since step 101")) << late;
  s.history.first_step = 1;
  EXPECT_FALSE(has(html::history_section({s}, {"a"}, {}), "since step"));
}

// 1.0 and 1.08 us a rank are 4% from their median, 1.0 and 1.2 us 9%.
TEST(HtmlHistory, TheMedianOfTwoRanksLiesBetweenThem) {
  auto s = stored("measured");
  s.history.step_ps.assign(2, kMicrosecond), s.history.end_ps = {kMicrosecond, 2 * kMicrosecond};
  s.history.slowest = {0, 2};
  s.history.computed = {kMicrosecond, 1'080'000};
  EXPECT_FALSE(has(html::history_section({s}, {"a"}, {}), "the straggler"));
  s.history.computed = {kMicrosecond, 1'200'000};
  const std::string section = html::history_section({s}, {"a"}, {});
  EXPECT_TRUE(has(section, "the straggler, 1.09 times the median")) << section;
}

// Steps of reinforcement learning are measured by their phases.
TEST(HtmlPage, ARunWithoutOperationsSaysSo) {
  auto phases = stored("measured");
  phases.ops.clear();
  phases.result.reinforcement.known = true;
  const std::string why =
      "no recorded operations: of performed steps of reinforcement learning the phases are measured, not their "
      "operations.";
  EXPECT_TRUE(has(static_page({phases}), "There are " + why)) << static_page({phases});
  const std::string both = static_page({stored(), phases});
  EXPECT_TRUE(has(both, "small, measured: " + why)) << both;
  EXPECT_FALSE(has(static_page({stored()}), "no recorded operations"));
}

TEST(HtmlErrors, AreSumsOverWhatBothRunsHave) {
  auto measured = stored("measured");
  measured.ops[0].duration_ps = 5 * kMicrosecond;
  measured.ops[2].slot = 7;  // has no twin
  const auto errors = html::kind_errors(stored(), measured);
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].kind, "gemm");
  EXPECT_EQ(errors[0].ops, 2);
  EXPECT_EQ(errors[0].simulated_ps, 8 * kMicrosecond);
  EXPECT_EQ(errors[0].measured_ps, 9 * kMicrosecond);
  EXPECT_EQ(errors[1].simulated_ps, kMicrosecond) << "a transfer's wait for its peers is not its time";
  EXPECT_TRUE(has(html::errors_table({stored(), measured}, {"a", "b"}), "-11.1%"));
  EXPECT_EQ(html::errors_table({stored(), stored()}, {"a", "b"}), "");
}

}  // namespace
}  // namespace rehearse::reports
