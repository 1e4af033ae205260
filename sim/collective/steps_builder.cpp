// See steps_builder.h.
#include "sim/collective/steps_builder.h"

#include <algorithm>
#include <utility>

namespace rehearse::collective {

std::int32_t StepsBuilder::agent() {
  drafts_.emplace_back();
  return static_cast<std::int32_t>(drafts_.size() - 1);
}

Ids StepsBuilder::agents(std::size_t count) {
  Ids ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(agent());
  return ids;
}

std::int32_t StepsBuilder::edge(int from, int to, std::int64_t bytes, std::int32_t receiver) {
  steps_.edges.push_back({from, to, std::max<std::int64_t>(1, bytes), receiver, {}});
  return static_cast<std::int32_t>(steps_.edges.size() - 1);
}

void StepsBuilder::stage(std::int32_t agent, Ids waits, Ids sends, std::int64_t repeat) {
  if (repeat > 0) drafts_[static_cast<std::size_t>(agent)].push_back({std::move(waits), std::move(sends), repeat});
}

void StepsBuilder::in_order(const Group& group, const std::vector<Round>& rounds) {
  const std::size_t n = group.members.size();
  const Ids all = agents(n);
  std::vector<Ids> pending(n);
  std::int64_t depth = 0;
  for (const Round& round : rounds) {
    std::vector<Ids> in(n), out(n);
    for (const Round::Message& m : round.messages) {
      const std::int32_t e = edge(group.members[m.from], group.members[m.to], m.bytes, all[m.to]);
      out[m.from].push_back(e);
      in[m.to].push_back(e);
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (out[i].size() > 1) concurrent();
      if (out[i].empty() && in[i].empty()) continue;
      stage(all[i], std::move(pending[i]), out[i]);
      stage(all[i], in[i], out[i], round.repeat - 1);
      pending[i] = std::move(in[i]);
    }
    depth += round.repeat;
  }
  for (std::size_t i = 0; i < n; ++i) stage(all[i], std::move(pending[i]), {});
  deepen(depth);
}

void StepsBuilder::deepen(std::int64_t depth, double fill) {
  steps_.depth = std::max(steps_.depth, depth);
  steps_.fill = std::max(steps_.fill, fill);
}

Steps StepsBuilder::finish() {
  const auto append = [](Ids& all, const Ids& some) {
    Steps::Range range{static_cast<std::int32_t>(all.size()), 0};
    all.insert(all.end(), some.begin(), some.end());
    range.last = static_cast<std::int32_t>(all.size());
    return range;
  };
  for (const std::vector<Draft>& agent : drafts_) {
    steps_.first_stage.push_back(static_cast<std::int32_t>(steps_.stages.size()));
    for (const Draft& d : agent)
      steps_.stages.push_back({append(steps_.waits, d.waits), append(steps_.sends, d.sends), d.repeat});
  }
  steps_.first_stage.push_back(static_cast<std::int32_t>(steps_.stages.size()));
  drafts_.clear();
  return std::move(steps_);
}

}  // namespace rehearse::collective
