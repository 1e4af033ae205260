// Outputs as a user names them, every command: regular files or new names, never an input, links neither followed nor
// replaced (sim/result/output_file.h, which alone may open them).
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <regex>
#include <sstream>

#include "tests/e2e/program.h"

namespace rehearse::e2e {
namespace {

namespace fs = std::filesystem;

const std::string kRuleInputs = std::string(REHEARSE_SOURCE_DIR) + "/tests/unit/formats/";

// A command line with {} where the output goes, and the names of the files it writes below that; "" where {} is one.
struct Writer {
  const char* name;
  std::vector<std::string> arguments;
  std::vector<std::string> files;
};

void PrintTo(const Writer& w, std::ostream* out) {
  *out << w.name;
}

class EveryWriter : public testing::TestWithParam<Writer> {
 protected:
  // RESULT is a result directory, made once.
  static const std::string& result() {
    static const Folder folder;
    static const std::string made = [] {
      EXPECT_EQ(run({"simulate", "gpt-tiny-ddp", "--set", "cluster.topology=dgx-a100", "-o", folder / "r"}).status, 0);
      return folder / "r";
    }();
    return made;
  }
  static Outcome write_to(const std::string& output) {
    std::vector<std::string> arguments = GetParam().arguments;
    for (std::string& a : arguments) {
      if (a == "{}") a = output;
      if (a == "RESULT") a = result();
    }
    return run(arguments);
  }
};

TEST_P(EveryWriter, RefusesLinksAndPipesBeforeItWorks) {
  for (const std::string& file : GetParam().files) {
    for (const bool link : {true, false}) {
      const Folder folder;
      const std::string ending = GetParam().arguments[0] == "calibrate" ? "out.json" : "out.yaml";
      const std::string output = folder / (file.empty() ? ending : "out");
      const std::string path = file.empty() ? output : output + "/" + file;
      fs::create_directories(fs::path(path).parent_path());
      const std::string target = folder.write("target", "mine");
      if (link)
        fs::create_symlink(target, path);
      else
        ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
      const std::vector<std::string> before = folder.files();
      const Outcome r = write_to(output);
      EXPECT_EQ(r.status, 2) << path << r.err;
      EXPECT_EQ(r.out, "");
      EXPECT_TRUE(has(r.err, path + ": error: " + (link ? "is a symbolic link" : "is a pipe"))) << r.err;
      EXPECT_EQ(read(target), "mine");
      EXPECT_EQ(fs::symlink_status(path).type(), link ? fs::file_type::symlink : fs::file_type::fifo);
      EXPECT_EQ(folder.files(), before) << "nothing else was written, nor left";
    }
  }
}

const std::vector<std::string> kResult = {"ops.csv", "trace.json.gz", "result.json"};
const std::string kLaunchScript = std::string(REHEARSE_SOURCE_DIR) + "/tests/fuzz/corpus/launch-script/llama.sh";
const std::string kTwo = kRuleInputs + "dgx-h100.xml";

INSTANTIATE_TEST_SUITE_P(
    Outputs, EveryWriter,
    testing::Values(
        Writer{"simulate", {"simulate", "gpt3-175b-1024xa100", "-o", "{}"}, kResult},
        Writer{"sweep", {"simulate", "gpt3-175b-1024xa100", "--sweep", "plan.zero=0,1", "-o", "{}"}, {"sweep.csv"}},
        Writer{"execute", {"execute", "gpt-tiny-ddp", "--steps", "1", "-o", "{}"}, kResult},
        Writer{"shrink",
               {"execute", "gpt3-175b-1024xa100", "--shrink", "-o", "{}"},
               {"miniature.yaml", "calibration.json", "large/ops.csv", "measured/result.json"}},
        Writer{"calibrate", {"calibrate", "--budget", "1", "-o", "{}"}, {""}},
        Writer{"calibrate_add", {"calibrate", "--budget", "1", "--add", "-o", "{}"}, {""}},
        Writer{"report", {"report", "RESULT", "-o", "{}"}, {""}},
        Writer{"compare", {"compare", "RESULT", "RESULT", "-o", "{}"}, {"compare.csv", "compare.json"}},
        Writer{"export", {"export", "gpt3-175b-1024xa100", "--to", "megatron", "-o", "{}"}, {""}},
        Writer{"import", {"import", kLaunchScript, "-o", "{}"}, {""}},
        Writer{"discover", {"discover", kTwo, "-o", "{}"}, {""}}, Writer{"init", {"init", "{}", "--force"}, {""}},
        Writer{"demo",
               {"demo", "-o", "{}"},
               {"calibration.json", "gpt3.html", "this-machine.html", "gpt3-175b-1024xa100/ops.csv", "plan/plan-1.yaml",
                "miniature/miniature.yaml"}},
        Writer{"validate", {"validate", "--filter", "22b", "-o", "{}"}, {"ledger.csv", "ledger.json"}},
        Writer{"validate_collectives", {"validate", "--collectives", "-o", "{}"}, {"ledger.csv", "ledger.json"}},
        Writer{
            "validate_local", {"validate", "--local", "-o", "{}"}, {"ledger.csv", "ledger.json", "calibration.json"}}),
    [](const auto& one) { return std::string(one.param.name); });

// The output of a command whose input it would replace: nothing is read or written that was not there.
void expect_refused(const Outcome& r, const std::string& path, const std::string& content) {
  EXPECT_EQ(r.status, 2) << r.err;
  EXPECT_TRUE(has(r.err, "is an input of this command")) << r.err;
  EXPECT_EQ(read(path), content);
}

TEST(OutputOverInput, DiscoverKeepsWhatItReads) {
  const Folder folder;
  const std::string text = read(kTwo), xml = folder.write("n.xml", text), hard = folder / "hard.yaml";
  expect_refused(run({"discover", xml, "-o", xml}), xml, text);
  ASSERT_EQ(::link(xml.c_str(), hard.c_str()), 0);
  expect_refused(run({"discover", xml, "-o", hard}), xml, text);
  fs::create_directory_symlink(folder / ".", folder / "way");
  expect_refused(run({"discover", xml, "-o", folder / "way/n.xml"}), xml, text);
  const Outcome relative = shell("cd '" + (folder / ".") + "' && $REHEARSE discover n.xml -o ./n.xml");
  expect_refused(relative, xml, text);
}

TEST(OutputOverInput, ScenariosDataAndCalibrationsStay) {
  const Folder folder;
  const std::string scenario = "rehearse: 1\nmodel: gpt-tiny\ncluster: {topology: dgx-a100}\n";
  fs::create_directories(folder / "out");
  folder.write("out/result.json", scenario);
  expect_refused(run({"simulate", folder / "out/result.json", "-o", folder / "out"}), folder / "out/result.json",
                 scenario);
  expect_refused(
      run({"calibrate", "--budget", "1", "--for", folder / "out/result.json", "-o", folder / "out/result.json"}),
      folder / "out/result.json", scenario);
  const std::string sweep = folder.write("out/sweep.csv", scenario);
  expect_refused(run({"simulate", sweep, "--sweep", "plan.micro_batch=1,2", "-o", folder / "out"}), sweep, scenario);
  const std::string text(4096, 'a'), data = folder.write("out/ops.csv", text);
  expect_refused(run({"execute", "gpt-tiny-ddp", "--steps", "1", "--data", data, "-o", folder / "out"}), data, text);
}

TEST(OutputOverInput, AFileThatOnlyTheScenarioNamesStays) {
  const Folder folder;
  fs::create_directories(folder / "out");
  const std::string text = read(std::string(REHEARSE_SOURCE_DIR) + "/topologies/dgx-a100.yaml");
  const std::string topology = folder.write("out/ops.csv", text);
  const std::string scenario =
      folder.write("s.yaml", "rehearse: 1\nmodel: gpt-tiny\ncluster: {topology: " + topology + "}\n");
  expect_refused(run({"simulate", scenario, "-o", folder / "out"}), topology, text);
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"out/ops.csv", "s.yaml"}));
}

TEST(OutputOverInput, ResultsAndMeasurementsStay) {
  const Folder folder;
  ASSERT_EQ(run({"simulate", "gpt-tiny-ddp", "--set", "cluster.topology=dgx-a100", "-o", folder / "r"}).status, 0);
  const std::string result = read(folder / "r/result.json"), ops = read(folder / "r/ops.csv");
  ASSERT_EQ(::link((folder / "r/ops.csv").c_str(), (folder / "page.html").c_str()), 0);
  expect_refused(run({"report", folder / "r", "-o", folder / "page.html"}), folder / "r/ops.csv", ops);
  EXPECT_EQ(run({"report", folder / "r", "-o", folder / "r/result.json"}).status, 2);
  EXPECT_EQ(read(folder / "r/result.json"), result);
  fs::create_directories(folder / "out");
  const std::string rows = "id,scenario,metric,value,unit,source\n";
  const std::string csv = folder.write("out/ledger.csv", rows);
  expect_refused(run({"validate", "--throughput", csv, "-o", folder / "out"}), csv, rows);
}

// Nobody but output_file.cpp opens a file to write it; what is no output is listed with what it is instead.
TEST(OutputRule, OnePlaceOpensOutputs) {
  const std::map<std::string, std::string> others = {
      {"cli/console.cpp", "/dev/null for closed standard streams"},
      {"execute/placement/elastic.cpp", "an empty file in the checkpoints' folder, by which ranks are asked for one"},
      {"execute/placement/shared_device.cpp", "/dev/null for a server's streams"},
      {"execute/processes/status_board.cpp", "shared memory of ranks, in the rendezvous folder"},
      {"execute/processes/mpi/mpi_job.cpp", "an empty file in a temporary folder, by which a job's ranks see its end"},
      {"execute/processes/socket_wire.cpp", "addresses of ranks, in the rendezvous folder"}};
  const std::regex opens(
      R"(\b(ofstream|fstream|basic_ofstream|f(d|re)?open|gzopen|creat|mk(o)?stemps?|tmpfile|addopen|copy_file|rename|renameat2?|O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|posix_spawn_file_actions_addopen)\b)");
  int files = 0, seen = 0;
  for (const char* folder : {"sim", "formats", "launch", "kernels", "execute", "calibrate", "reports", "cli"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(REHEARSE_SOURCE_DIR) / folder)) {
      const std::string name = fs::relative(entry.path(), REHEARSE_SOURCE_DIR).string();
      const std::string kind = entry.path().extension().string();
      if (kind != ".cpp" && kind != ".h" && kind != ".cu") continue;
      ++files;
      std::istringstream lines(read(entry.path().string()));
      int number = 0;
      for (std::string line; std::getline(lines, line);) {
        ++number;
        line.resize(std::min(line.find("//"), line.size()));
        if (line.starts_with("#include") || !std::regex_search(line, opens)) continue;
        ++seen;
        EXPECT_TRUE(name == "sim/result/output_file.cpp" || others.contains(name))
            << name << ":" << number << ": " << line << "\n  outputs are written through sim/result/output_file.h";
      }
    }
  EXPECT_GT(files, 300);
  EXPECT_GE(seen, 6) << "the pattern finds what is known to be there";
}

}  // namespace
}  // namespace rehearse::e2e
