// rehearse estimate: what a training run of a model needs before any plan is made (reports/estimate.h). The model is a
// preset, a bare size or a Hugging Face configuration.
#include "reports/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/model_option.h"
#include "cli/names.h"
#include "cli/paths.h"
#include "cli/refuse.h"
#include "sim/base/text_check.h"
#include "sim/cost/cost.h"
#include "sim/cost/device_file.h"

namespace rehearse::cli {
namespace {

constexpr std::int64_t kMostGpus = 1'000'000'000;
constexpr const char* kUsualDevice = "a100-sxm-80g";

struct EstimateArguments {
  std::string model, tokens, device, memory, share = "80%";
  std::int64_t seq_len = 0, gpus = 0, global_batch = 0;
  double mfu = 40;
  bool json = false;
};

double percent_of(const std::string& option, std::string text) {
  if (text.ends_with('%')) text.pop_back();
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (error != std::errc() || stop != end || !(value >= 1 && value <= 100))
    refuse(option, fmt::format("expected a percentage, 1 to 100, such as 80%, found {}", detail::shown(text)));
  return value;
}

void read_model_argument(const EstimateArguments& a, const std::string& root, reports::EstimateRequest& request) {
  request.name = a.model;
  if (const auto size = reports::parse_model_size(a.model)) {
    if (a.seq_len > 0)
      refuse("--seq-len", "a bare size has no layers, whose attention a sequence's length would matter to");
    request.parameters = *size;
    return;
  }
  request.model = model_option("MODEL", a.model, root);
  request.name = request.model->name;
  request.parameters = static_cast<double>(model::parameter_count(*request.model));
  if (!request.model->reads_text()) {
    if (a.seq_len > 0 || !a.tokens.empty())
      refuse(a.seq_len > 0 ? "--seq-len" : "--tokens", fmt::format("{} reads no tokens", request.name));
    return;
  }
  request.seq_len = a.seq_len > 0 ? a.seq_len : request.model->usual_seq_len();
}

int estimate(const EstimateArguments& a) {
  const std::string root = data_root();
  reports::EstimateRequest request;
  read_model_argument(a, root, request);
  if (!a.tokens.empty()) {
    const auto tokens = reports::parse_model_size(a.tokens);
    if (!tokens)
      refuse("--tokens", fmt::format("expected a number such as 1.4T or 300B, found {}", detail::shown(a.tokens)));
    request.tokens = *tokens;
  }
  request.device = a.device.empty() ? kUsualDevice : a.device;
  const cost::Device device = cost::read_device_files({cost::find_device_file(request.device, root)}).device;
  request.peak = device.peak_bf16;
  if (!a.device.empty()) request.memory = device.memory;
  if (!a.memory.empty()) {
    const auto memory = parse_bytes(a.memory);
    if (!memory || memory->count() < 1'000'000)
      refuse("--memory", fmt::format("expected a size from 1MB on, such as 80GB, found {}", detail::shown(a.memory)));
    request.memory = *memory;
  }
  request.memory_percent = percent_of("--share", a.share);
  request.mfu_percent = a.mfu;
  request.gpus = a.gpus;
  request.global_batch = a.global_batch;
  if (a.global_batch > 0 && !request.model)
    refuse("--global-batch", "a bare size has no sequences, whose length the batch is a multiple of", "a model's name");
  const reports::Estimate e = reports::estimate_of(request);
  print(a.json ? reports::estimate_json(e) : reports::estimate_text(e));
  return kDone;
}

}  // namespace

void add_estimate(CLI::App& app, Action& action) {
  auto a = std::make_shared<EstimateArguments>();
  CLI::App* command = app.add_subcommand("estimate", "A model's FLOPs, memory and GPUs, before any plan");
  command->add_option("MODEL", a->model, "A size (175B), a preset's name, or a config.json")->required()->type_name("");
  command->add_option("--tokens", a->tokens, "To train on (default: 20 a parameter)")->type_name("N");
  command->add_option("--seq-len", a->seq_len, "Tokens a sequence (default: the model's longest)")
      ->check(between(1, 1'000'000'000))
      ->type_name("N");
  command->add_option("--global-batch", a->global_batch, "Sequences or samples a step: how many steps")
      ->check(between(1, 1'000'000'000))
      ->type_name("N");
  command->add_option("--gpus", a->gpus, "Of the table of memory (default: what is needed)")
      ->check(between(1, static_cast<int>(kMostGpus)))
      ->type_name("N");
  command->add_option("--device", a->device, "Of rehearse list devices: its peak and memory")->type_name("DEVICE");
  command->add_option("--memory", a->memory, "Of a GPU (default: 80GB, or the device's)")->type_name("SIZE");
  command->add_option("--share", a->share, "Of it for states (default: 80%)")->type_name("PERCENT");
  command->add_option("--mfu", a->mfu, "Percent of the peak (default: 40)")
      ->check(number_between(1, 100))
      ->type_name("PERCENT");
  command->add_flag("--json", a->json, "The same for programs");
  command->footer(
      "Examples:\n  rehearse estimate 175B\n  rehearse estimate llama3-70b --tokens 15T --device h100-sxm\n"
      "  rehearse estimate Qwen2.5-7B/config.json --gpus 64");
  command->callback([a, &action] { action = [a] { return estimate(*a); }; });
}

}  // namespace rehearse::cli
