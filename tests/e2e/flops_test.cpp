// How FLOPs are counted is said where MFU is printed, in the terminal and on the page, for the family at hand; and what
// a model needs is never more than what its program does.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "program.h"

namespace rehearse::e2e {
namespace {

struct FlopsCase {
  const char *family, *model, *formula;
};
constexpr FlopsCase kCases[] = {
    {"gpt", "gpt2-small", "72 B s L h^2"},
    {"llama", "llama-tiny", "6 B s (L (2 h a + 2 h k + 2 s a + 3"},
    {"moe", "moe-tiny", "(L - D) h (e + 3 (t x + y))"},
    {"cnn", "cnn-cifar", "sum of Cin K^2 Cout H W"},
    {"mlp", "mlp-mnist", "sum of in x out over layers"},
    {"bert", "bert-tiny", "p (h^2 + h V) + h^2 + 2 h"},
    {"t5", "t5-tiny", "D (t (6 h a + 2 t a + 2 s a + 2 h f) + 2 s h a) + t h V"},
};

// Its lines as one, blanks as one.
std::string flowing(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c != '\n' && (c != ' ' || !out.ends_with(' ')))
      out += c;
    else if (!out.ends_with(' '))
      out += ' ';
  return out;
}

TEST(List, ModelsAreOfTheirFamily) {
  const auto listed = nlohmann::json::parse(run({"list", "models", "--json"}).out);
  std::map<std::string, std::string> families;
  for (const auto& model : listed) families[model["name"]] = model["family"];
  for (const FlopsCase& c : kCases) EXPECT_EQ(families[c.model], c.family);
}

TEST(Flops, AreCountedByTheFamilysFormulaWhereverMfuIsPrinted) {
  const Folder folder;
  for (const FlopsCase& c : kCases) {
    SCOPED_TRACE(c.family);
    const std::string out = folder / c.family;
    const Outcome r = run({"simulate",
                           folder.write(std::string(c.family) + ".yaml",
                                        "rehearse: 1\nmodel: " + std::string(c.model) +
                                            "\ncluster: {topology: dgx-a100, gpus: 2}\ntraining: {precision: fp32}\n"),
                           "-o", out});
    ASSERT_EQ(r.status, 0) << r.err;
    ASSERT_EQ(run({"report", out, "-o", folder / "page.html"}).status, 0);
    const std::string terminal = flowing(r.out), page = read(folder / "page.html");
    for (const FlopsCase& other : kCases) {
      EXPECT_EQ(has(terminal, other.formula), &other == &c) << other.family << "\n" << r.out;
      EXPECT_EQ(has(page, other.formula), &other == &c) << other.family;
    }
    const auto result = nlohmann::json::parse(read(out + "/result.json"));
    EXPECT_GT(result["mfu"].get<double>(), 0);
    EXPECT_LE(result["mfu"].get<double>(), result["hfu"].get<double>() * (1 + 1e-12));
  }
  // Side by side each says its own.
  ASSERT_EQ(run({"report", folder / "cnn", folder / "mlp", "-o", folder / "page.html"}).status, 0);
  const std::string page = read(folder / "page.html");
  EXPECT_TRUE(has(page, kCases[3].formula));
  EXPECT_TRUE(has(page, kCases[4].formula));
}

}  // namespace
}  // namespace rehearse::e2e
