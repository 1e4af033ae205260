// Programs for torchrun: the mesh has every rank that the line starts, and Python's compiler takes the file.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "launch/launch.h"
#include "sim/plan/scenario.h"
#include "tests/support/text.h"
#include "tests/unit/launch/written.h"

namespace rehearse::launch {
namespace {

Exported program_of(const std::vector<std::string>& assignments) {
  const Written base("torchrun.yaml",
                     "rehearse: 1\nmodel: llama3-8b\ncluster: {topology: dgx-h100, gpus: 64}\n"
                     "plan: {micro_batch: 1}\ntraining: {global_batch: 512, seq_len: 4096}\n");
  return export_plan("torchrun", plan::read_scenario(base.path, assignments, REHEARSE_SOURCE_DIR), 8);
}

// What the plan needs of the model itself is named.
bool names(const Exported& program, const std::string& key) {
  return std::any_of(program.left_out.begin(), program.left_out.end(),
                     [&](const LeftOut& one) { return one.key == key; });
}

TEST(Torchrun, TheMeshHasAllRanksInTheirOrder) {
  struct Case {
    std::vector<std::string> plan;
    const char *mesh, *use;
  };
  const Case cases[] = {
      {{"plan.zero=3"}, "(1, 64), mesh_dim_names=(\"replicate\", \"shard\"))", "dict(mesh=mesh[\"shard\"],"},
      {{"plan.zero=3", "plan.zero_group=8"}, "(8, 8), mesh_dim_names=(\"replicate\", \"shard\"))", "dict(mesh=mesh,"},
      {{"plan.zero=0", "framework=torch-ddp", "plan.recompute=full"},
       "(64, 1), mesh_dim_names=(\"replicate\", \"shard\"))",
       "DistributedDataParallel(model)"},
      {{"plan.zero=3", "plan.tensor=8"},
       "(1, 8, 8), mesh_dim_names=(\"replicate\", \"shard\", \"tensor\"))",
       "dict(mesh=mesh[\"shard\"],"},
      {{"plan.zero=3", "plan.zero_group=4", "plan.tensor=2", "plan.pipeline=2"},
       "(2, 4, 4, 2), mesh_dim_names=(\"pipeline\", \"replicate\", \"shard\", \"tensor\"))",
       "dict(mesh=mesh[\"replicate\", \"shard\"],"},
      {{"plan.tensor=4", "plan.pipeline=4", "plan.rank_order=[tensor, pipeline, data, context, expert]"},
       "(4, 1, 4, 4), mesh_dim_names=(\"replicate\", \"shard\", \"pipeline\", \"tensor\"))",
       "DistributedDataParallel(model, process_group=mesh[\"replicate\"].get_group())"},
      {{"plan.zero=3", "plan.context=4"},
       "(1, 16, 4), mesh_dim_names=(\"replicate\", \"shard\", \"context\"))",
       "dict(mesh=mesh[\"shard\"],"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(c.plan, " ")));
    const Exported program = program_of(c.plan);
    EXPECT_TRUE(has(program.text, "init_device_mesh(\"cuda\", " + std::string(c.mesh))) << program.text;
    EXPECT_TRUE(has(program.text, c.use)) << program.text;
    EXPECT_TRUE(has(program.run.front(), "--nnodes 8 --nproc-per-node 8 "));
    for (const std::string key : {"tensor", "pipeline", "context"})
      EXPECT_EQ(names(program, "plan." + key), has(program.text, '"' + key + '"')) << key << "\n" << program.text;
    if (std::system("command -v python3 >/dev/null") == 0) {
      const Written file("program.py", program.text);
      const std::string check = "python3 -c 'import sys; compile(open(sys.argv[1]).read(), sys.argv[1], \"exec\")' ";
      EXPECT_EQ(std::system((check + "'" + file.path + "'").c_str()), 0) << program.text;
    }
  }
}

}  // namespace
}  // namespace rehearse::launch
