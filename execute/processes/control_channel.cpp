// See control_channel.h. A text goes as its length and, if it has any, its bytes.
#include "execute/processes/control_channel.h"

#include <cstring>

namespace rehearse::execute {
namespace {

constexpr int kRootRank = 0;

std::uint64_t tag_of(ControlChannel::Topic topic, bool length) {
  return make_tag(TagKind::control, 2 * static_cast<std::int64_t>(topic) + (length ? 1 : 0), 0);
}

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace

void ControlChannel::post(int to, Topic topic, const std::string& text) {
  wire_.post(to, kControlLane, tag_of(topic, true), bytes_of(static_cast<std::uint64_t>(text.size())));
  if (!text.empty()) wire_.post(to, kControlLane, tag_of(topic, false), text);
}

std::string ControlChannel::receive(int from, Topic topic) {
  std::uint64_t length = 0;
  wire_.wait(*wire_.receive(from, kControlLane, tag_of(topic, true), &length, sizeof length));
  std::string text(length, '\0');
  if (!text.empty()) wire_.wait(*wire_.receive(from, kControlLane, tag_of(topic, false), text.data(), text.size()));
  return text;
}

void ControlChannel::report_loss(std::int64_t step, int rank, double part) {
  if (wire_.rank() == kRootRank)
    losses_.report(step, rank, part);
  else
    wire_.post(kRootRank, kControlLane, make_tag(TagKind::loss, 0, step), bytes_of(part));
}

std::optional<double> ControlChannel::loss(std::int64_t step, std::span<const int> reporters) {
  try {
    for (const int rank : reporters) {
      if (rank == kRootRank) continue;
      Part& part = parts_[rank];
      if (part.step == step) continue;  // has come
      if (part.transfer == nullptr)
        part.transfer =
            wire_.receive(rank, kControlLane, make_tag(TagKind::loss, 0, step), &part.value, sizeof part.value);
      if (!wire_.look(*part.transfer)) return {};
      part.transfer.reset();
      part.step = step;
      losses_.report(step, rank, part.value);
    }
  } catch (const Stopped&) {
    return {};
  }
  return losses_.take(step, reporters);
}

}  // namespace rehearse::execute
