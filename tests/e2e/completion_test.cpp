// Shell completion as a shell uses it: the script is sourced and asked; bash always, zsh and fish where they are there.
#include <gtest/gtest.h>

#include <sstream>

#include "program.h"

namespace rehearse::e2e {
namespace {

// What bash offers for a line, words between blanks.
std::string offered(const std::string& line) {
  const Outcome r = shell("source <(\"$REHEARSE\" completion bash) && COMP_LINE='" + line +
                          "' && COMP_POINT=${#COMP_LINE} && _rehearse && printf '%s ' \"${COMPREPLY[@]}\"");
  EXPECT_EQ(r.status, 0) << line << ": " << r.err;
  EXPECT_EQ(r.err, "") << line;
  return r.out.empty() ? "" : r.out.substr(0, r.out.size() - 1);
}

TEST(Completion, BashOffersCommandsOptionsAndValues) {
  EXPECT_EQ(offered("rehearse si"), "simulate");
  EXPECT_TRUE(has(offered("rehearse "), "simulate plan execute calibrate demo"));
  EXPECT_EQ(offered("./rehearse simulate x --sw"), "--sweep");
  EXPECT_EQ(offered("rehearse simulate gpt-tiny-"),
            "gpt-tiny-2x2x2 gpt-tiny-ddp gpt-tiny-grpo-local gpt-tiny-ppo-local gpt-tiny-text");
  EXPECT_EQ(offered("rehearse simulate x --fold "), "auto off explain");
  EXPECT_EQ(offered("rehearse list d"), "devices");
  EXPECT_EQ(offered("rehearse init --model gpt2-"), "gpt2-large gpt2-medium gpt2-small gpt2-xl");
  EXPECT_EQ(offered("rehearse init --cluster dgx-h1"), "dgx-h100");
  EXPECT_EQ(offered("rehearse explain plan.overlap_"),
            "plan.overlap_grad_reduce plan.overlap_param_gather plan.overlap_tensor_backward "
            "plan.overlap_expert_exchange plan.overlap_shared_experts");
  EXPECT_EQ(offered("rehearse explain training.lora"), "training.lora_rank training.lora_alpha training.lora_targets");
  EXPECT_EQ(offered("rehearse completion "), "bash zsh fish");
  EXPECT_EQ(offered("rehearse export x --to torcht"), "torchtitan torchtitan-toml");
  EXPECT_EQ(offered("rehearse estimate llama3.2-"), "llama3.2-1b llama3.2-3b");
  EXPECT_EQ(offered("rehearse estimate 7B --device h200"), "h200-sxm");
}

TEST(Completion, BashOffersKeysThenTheirValues) {
  EXPECT_EQ(offered("rehearse simulate x --set plan.ze"), "plan.zero= plan.zero_group=");
  EXPECT_EQ(offered("rehearse simulate x --set plan.recompute="), "none selective full ops");
  EXPECT_EQ(offered("rehearse simulate x --set plan.schedule=g"), "gpipe");
  EXPECT_EQ(offered("rehearse simulate x --set=model=llama2-7b"), "llama2-7b");
  EXPECT_EQ(offered("rehearse simulate x --set plan.tensor=8"), "") << "any number";
}

TEST(Completion, BashCountsArgumentsWithoutOptionsAndTheirValues) {
  EXPECT_EQ(offered("rehearse simulate --steps 3 --json gpt-tiny-d"), "gpt-tiny-ddp");
  EXPECT_EQ(offered("rehearse simulate --steps "), "");
  EXPECT_EQ(offered("rehearse simulate one two"), "") << "there is one argument";
}

TEST(Completion, EveryOptionOfEveryCommandIsOffered) {
  for (const char* command :
       {"simulate", "execute", "demo", "validate", "list", "init", "explain", "estimate", "export", "import"}) {
    const std::string all = " " + offered(std::string("rehearse ") + command + " -") + " ";
    std::istringstream help(run({command, "--help"}).out);
    for (std::string word; help >> word;)
      if (word.starts_with("--") && word.find_first_of(",=.:;'|") == std::string::npos) {
        EXPECT_TRUE(has(all, " " + word + " ")) << command << " " << word << " in" << all;
      }
  }
}

TEST(Completion, OtherShellsReadTheirScripts) {
  for (const char* name : {"bash", "zsh", "fish"}) {
    const Folder folder;
    const Outcome r =
        shell("set -- '" + (folder / "script") + "'; " + std::string("command -v ") + name +
              " >/dev/null || exit 77; \"$REHEARSE\" completion " + name + " >\"$1\" && " + name + " -n \"$1\"");
    EXPECT_TRUE(r.status == 0 || r.status == 77) << name << ": " << r.err;
  }
  EXPECT_EQ(run({"completion", "csh"}).status, 2);
  EXPECT_EQ(run({"completion"}).status, 2);
}

}  // namespace
}  // namespace rehearse::e2e
