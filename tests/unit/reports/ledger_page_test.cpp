// The ledger's page and its figures: well-formed, a mark a row, nothing of a table becomes markup, nothing is fetched.
#include "reports/ledgers/ledger_page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "reports/ledgers/ledger_figures.h"
#include "reports/ledgers/ledger_marks.h"
#include "tests/support/text.h"
#include "throughput_rows.h"

namespace rehearse::reports {
namespace {

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// What keeps `text` from being one well-formed XML element (of the parts that our figures use), or "".
std::string xml_problem(const std::string& text) {
  static const std::regex tag(R"re(<(?:(/)([A-Za-z]+)|([A-Za-z]+)((?: [A-Za-z0-9:-]+="[^"<>]*")*)(/)?)>)re");
  static const std::regex attribute(R"re( ([A-Za-z0-9:-]+)=")re");
  std::vector<std::string> open;
  std::size_t at = 0, roots = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), tag), end; it != end; ++it) {
    const std::string between = text.substr(at, static_cast<std::size_t>(it->position()) - at);
    if (between.find_first_of("<>") != std::string::npos) return "a stray bracket in: " + between;
    if (open.empty() && between.find_first_not_of(" \n") != std::string::npos) return "text outside: " + between;
    at = static_cast<std::size_t>(it->position() + it->length());
    if ((*it)[1].matched) {
      if (open.empty() || open.back() != (*it)[2]) return "closed without being open: " + it->str();
      open.pop_back();
      continue;
    }
    if (open.empty() && ++roots > 1) return "two roots";
    const std::string attributes = (*it)[4];
    std::vector<std::string> names;
    for (std::sregex_iterator a(attributes.begin(), attributes.end(), attribute); a != end; ++a)
      names.push_back((*a)[1]);
    std::sort(names.begin(), names.end());
    if (std::adjacent_find(names.begin(), names.end()) != names.end()) return "an attribute twice: " + it->str();
    if (!(*it)[5].matched) open.push_back((*it)[3]);
  }
  if (!open.empty()) return "not closed: " + open.back();
  static const std::regex loose("&(?!(amp|lt|gt|quot|#39);)");
  if (std::regex_search(text, loose)) return "a bare ampersand";
  return roots == 1 && text.find_first_not_of(" \n", at) == std::string::npos ? "" : "not one element";
}

// Eleven software packages, so that colours come again; one row is not used, one does not fit.
std::vector<ThroughputRow> many_rows() {
  std::vector<ThroughputRow> rows;
  for (int i = 0; i < 22; ++i) {
    ThroughputRow row = published_row("run-" + std::to_string(i), 0.5 * (i + 1), 0.45 * (i + 1) + 0.02 * (i % 5));
    row.software = "Software " + std::to_string(i % 11);
    row.task = "task " + std::to_string(i % 4);
    row.gpus = 1 << (i % 8), row.seq_len = 512 << (i % 6), row.mfu = 0.2 + 0.015 * i;
    rows.push_back(row);
  }
  rows[3].used = false, rows[3].reason = "the vocabulary is not given";
  rows[4].fits = false;
  rows[5].memory_kind = "reserved", rows[5].memory_measured = 60e9, rows[5].memory_predicted = 50e9;
  rows[6].model = "</title><script>alert('&')</script>", rows[6].software = "<b>\"Quoted\"</b>";
  return rows;
}

TEST(LedgerFigures, CheckerOfXmlSeesWhatIsBroken) {
  EXPECT_EQ(xml_problem("<svg a=\"1\"><title>x &amp; y</title><g/></svg>\n"), "");
  for (const char* broken : {"<svg><g></svg>", "<svg>a < b</svg>", "<svg>a & b</svg>", "<svg a=\"1\" a=\"2\"/>",
                             "<svg/><svg/>", "<svg></svg>x", "<svg a=1></svg>", "<svg>"})
    EXPECT_NE(xml_problem(broken), "") << broken;
}

TEST(LedgerFigures, AreWellFormedWithAMarkARow) {
  const auto rows = many_rows();
  const std::size_t used = html::used_rows(rows).size(), software = 12;
  ASSERT_EQ(used, 21u);
  for (const bool standalone : {false, true}) {
    const std::string svg = html::predicted_measured_figure(rows, standalone);
    EXPECT_EQ(xml_problem(svg), "");
    EXPECT_EQ(occurrences(svg, "class=\"lf-m "), used + software) << "a mark a row, and one a software in the legend";
    EXPECT_EQ(standalone, has(svg, "xmlns=\"http://www.w3.org/2000/svg\""));
    EXPECT_EQ(standalone, has(svg, "<style>"));
  }
  for (const html::Over over : {html::Over::seq_len, html::Over::gpus, html::Over::mfu}) {
    const std::string svg = html::residual_figure(rows, over);
    EXPECT_EQ(xml_problem(svg), "");
    EXPECT_EQ(occurrences(svg, "class=\"lf-m "), used);
  }
  const std::string coverage = html::coverage_figure(rows), intervals = html::interval_figure(rows);
  EXPECT_EQ(xml_problem(coverage), "");
  EXPECT_EQ(occurrences(coverage, "lf-track"), software);
  EXPECT_EQ(xml_problem(intervals), "");
  EXPECT_EQ(occurrences(intervals, "class=\"lf-in\"") + occurrences(intervals, "class=\"lf-out\""), used);
}

TEST(LedgerFigures, SayWhatTheyShowWithoutBeingSeen) {
  const std::string svg = predicted_measured_svg(many_rows());
  EXPECT_TRUE(has(svg, "role=\"img\" aria-labelledby=\"predicted-measured-title predicted-measured-desc\""));
  EXPECT_TRUE(has(svg, "<title id=\"predicted-measured-title\">Predicted against measured step time of 21 published"));
  EXPECT_TRUE(has(svg, "<title>run-0 (m, 1 GPU, tp8 pp1 dp1 z0 mb1): measured 0.5 s, predicted 0.45 s, -10.0%</title>"))
      << svg;
  EXPECT_TRUE(has(svg, "-6.8%, predicted not to fit</title>")) << svg;
}

TEST(LedgerFigures, MarksLieWhereTheirValuesAre) {
  const html::Scale decades{1, 100, 0, 200, true}, linear{0, 10, 100, 0, false};
  EXPECT_DOUBLE_EQ(decades.at(10), 100);
  EXPECT_DOUBLE_EQ(linear.at(2.5), 75);
  // A run that is predicted exactly lies on the diagonal from the lower left of the frame to its upper right.
  const std::string svg =
      html::predicted_measured_figure({published_row("a", 3, 3), published_row("b", 30, 30)}, false);
  std::smatch line, mark;
  ASSERT_TRUE(std::regex_search(svg, line, std::regex(R"re(lf-one" x1="(\S+)" y1="(\S+)" x2="(\S+)" y2="(\S+)")re")));
  ASSERT_TRUE(std::regex_search(svg, mark, std::regex(R"re(lf-m lf-0" d="M(\S+) (\S+)a4)re")));
  const auto value = [](const std::ssub_match& m) { return std::stod(m.str()); };
  const double share = (value(mark[1]) + 4 - value(line[1])) / (value(line[3]) - value(line[1]));
  EXPECT_NEAR((value(mark[2]) - value(line[2])) / (value(line[4]) - value(line[2])), share, 1e-3);
}

TEST(LedgerPage, HasEveryPart) {
  const std::string page = ledger_page(many_rows(), "runs.csv");
  for (const char* id : {"predicted", "residuals", "intervals", "software", "worst", "ranking", "memory", "rows"})
    EXPECT_TRUE(has(page, "<section id=\"" + std::string(id) + "\">")) << id;
  EXPECT_TRUE(has(page, "<p>21 of the 22 rows of runs.csv are scenarios"));
  EXPECT_TRUE(has(page, "the vocabulary is not given"));
  EXPECT_EQ(page, ledger_page(many_rows(), "runs.csv")) << "the same rows, the same bytes";
}

TEST(LedgerPage, WorstRunsNameWhatIsMissing) {
  std::vector<ThroughputRow> rows;
  for (int i = 0; i < 12; ++i) rows.push_back(published_row("run-" + std::to_string(i), 10, 9.9 - 0.5 * i));
  rows[11].missing = "copies around gathers";
  const std::string page = ledger_page(rows, "runs.csv");
  const std::string worst = page.substr(page.find("<section id=\"worst\">"),
                                        page.find("<section id=\"ranking\">") - page.find("<section id=\"worst\">"));
  EXPECT_EQ(occurrences(worst, "<tr>"), 11u) << "ten and the heading";
  EXPECT_LT(worst.find("run-11"), worst.find("run-10"));
  EXPECT_TRUE(has(worst, "<td>copies around gathers</td>"));
  EXPECT_FALSE(has(worst, "run-1<")) << worst;
}

TEST(LedgerPage, NothingOfATableIsMarkupOrFetched) {
  const std::string page = ledger_page(many_rows(), "<i>runs</i>.csv");
  EXPECT_FALSE(has(page, "<script"));
  EXPECT_FALSE(has(page, "<b>"));
  EXPECT_FALSE(has(page, "<i>runs"));
  EXPECT_FALSE(std::regex_search(page, std::regex("(src|href)=")));
  EXPECT_TRUE(has(page, "default-src 'none'"));
}

TEST(LedgerPage, WithoutAUsedRowThereAreReasonsOnly) {
  std::vector<ThroughputRow> rows = {published_row("a", 10, 9)};
  rows[0].used = false, rows[0].reason = "the vocabulary is not given";
  const std::string page = ledger_page(rows, "runs.csv");
  EXPECT_TRUE(has(page, "the vocabulary is not given"));
  EXPECT_FALSE(has(page, "<svg"));
  EXPECT_EQ(predicted_measured_svg(rows), "");
}

}  // namespace
}  // namespace rehearse::reports
