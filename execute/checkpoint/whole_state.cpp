// See whole_state.h.
#include "execute/checkpoint/whole_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>

#include "execute/checkpoint/folder.h"
#include "sim/base/diagnostics.h"

namespace rehearse::execute {
namespace {

[[noreturn]] void refuse_whole(const std::string& why) {
  throw InputError(Diagnostic{"--checkpoint-kind", 0, 0, "", why, "sharded, or incremental, of each rank its own"});
}

// The parts of [begin, end) that are not covered; they are afterwards.
std::vector<std::pair<std::int64_t, std::int64_t>> cover(std::map<std::int64_t, std::int64_t>& covered,
                                                         std::int64_t begin, std::int64_t end) {
  std::vector<std::pair<std::int64_t, std::int64_t>> free;
  auto next = covered.upper_bound(begin);
  if (next != covered.begin() && std::prev(next)->second >= begin) --next;
  std::int64_t at = begin, first = begin, last = end;
  while (next != covered.end() && next->first <= end) {
    if (next->first > at) free.emplace_back(at, next->first);
    at = std::max(at, next->second);
    first = std::min(first, next->first), last = std::max(last, next->second);
    next = covered.erase(next);
  }
  if (at < end) free.emplace_back(at, end);
  covered[first] = last;
  return free;
}

// Of servers, whose values are parameters and fp32 copies at once.
bool is_said_twice(const StateTensor& tensor, const StateHeader& header) {
  return tensor.kind == "master" && std::any_of(header.tensors.begin(), header.tensors.end(), [&](const auto& other) {
           return other.kind == "param" && other.name == tensor.name && other.type == tensor.type &&
                  other.runs.front().offset == tensor.runs.front().offset;
         });
}

void in_order(std::vector<StateSpan>& spans) {
  std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  std::vector<StateSpan> joined;
  for (const StateSpan& span : spans)
    if (!joined.empty() && joined.back().offset + joined.back().bytes == span.offset)
      joined.back().bytes += span.bytes;
    else
      joined.push_back(span);
  spans = std::move(joined);
}

}  // namespace

WholeState::WholeState(const std::vector<RankState>& holders) : parts_(holders.size()) {
  for (std::size_t i = 0; i < holders.size(); ++i) {
    const StateHeader& header = holders[i].header();
    for (const StateTensor& tensor : header.tensors)
      if (!is_said_twice(tensor, header)) add_tensor(tensor, static_cast<int>(i));
    for (const std::size_t buffer : holders[i].whole_buffers()) add_buffer(header.buffers[buffer], static_cast<int>(i));
  }
  for (std::vector<StateSpan>& part : parts_) in_order(part);
  lay_out();
}

void WholeState::add_tensor(const StateTensor& tensor, int holder) {
  const auto [found, is_new] =
      tensors_.try_emplace({tensor.kind, tensor.name}, Tensor{tensor.type, tensor.elements, {}, {}});
  Tensor& whole = found->second;
  if (whole.type != tensor.type || whole.elements != tensor.elements)
    refuse_whole(fmt::format("'{}' of '{}' is {} of {} on rank {}, {} of {} on a rank before it: it has no whole",
                             tensor.kind, tensor.name, tensor.elements, name_of(tensor.type), holder, whole.elements,
                             name_of(whole.type)));
  const std::int64_t width = size_of(tensor.type);
  for (const StateRun& run : tensor.runs)
    for (const auto& [begin, end] : cover(whole.covered, run.global, run.global + run.count)) {
      const std::int64_t from = run.offset + (begin - run.global) * width, bytes = (end - begin) * width;
      whole.pieces.push_back({begin * width, bytes, holder, from});
      parts_[static_cast<std::size_t>(holder)].push_back({from, bytes});
    }
}

void WholeState::add_buffer(const StateBuffer& buffer, int holder) {
  if (buffer.name.find(".bucket") != std::string::npos)
    refuse_whole(fmt::format("'{}' ({}) is each rank's own: it has no whole", buffer.name, name_of(buffer.type)));
  const std::int64_t bytes = buffer.elements * size_of(buffer.type);
  const Piece piece{0, bytes, holder, buffer.offset};
  parts_[static_cast<std::size_t>(holder)].push_back({buffer.offset, bytes});
  const auto [found, is_new] = buffers_.try_emplace(buffer.name, buffer, piece);
  if (is_new) return;
  const StateBuffer& first = found->second.first;
  if (first.type != buffer.type || first.elements != buffer.elements)
    refuse_whole(fmt::format("'{}' is {} of {} on rank {}, {} of {} on rank {}: it has no whole", buffer.name,
                             buffer.elements, name_of(buffer.type), holder, first.elements, name_of(first.type),
                             found->second.second.holder));
  copies_.push_back({buffer.name, piece});
}

void WholeState::lay_out() {
  std::int64_t place = 0;
  for (auto& [name, tensor] : tensors_) {
    if (tensor.covered.size() != 1 || tensor.covered.begin()->first != 0 ||
        tensor.covered.begin()->second != tensor.elements)
      refuse_whole(
          fmt::format("of '{}' of '{}' no rank has all, and all ranks together have not", name.first, name.second));
    header_.tensors.push_back({name.second, name.first, tensor.type, tensor.elements, {{0, tensor.elements, place}}});
    for (Piece piece : tensor.pieces) {
      piece.to += place;
      pieces_.push_back(piece);
    }
    place += tensor.elements * size_of(tensor.type);
  }
  for (auto& [name, buffer] : buffers_) {
    buffer.first.offset = buffer.second.to = place;
    header_.buffers.push_back(buffer.first);
    pieces_.push_back(buffer.second);
    place += buffer.second.bytes;
  }
  header_.payload_bytes = place;
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.to < b.to; });
}

StateHeader WholeState::part_of(const StateHeader& holder) const {
  StateHeader part = holder;
  part.stored = parts_.at(static_cast<std::size_t>(holder.rank));
  return part;
}

void WholeState::put_together(const std::string& checkpoint, std::int64_t step) const {
  std::vector<std::unique_ptr<StateFile>> parts;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    parts.push_back(std::make_unique<StateFile>(
        checkpoint, state_file_facts(checkpoint, part_file_name(static_cast<int>(i))), "the run that writes it"));
  std::vector<std::byte> block, other;
  const auto read = [&](const Piece& piece, std::int64_t first, std::int64_t bytes, std::byte* to) {
    parts[static_cast<std::size_t>(piece.holder)]->read(piece.from + first, bytes, to);
  };
  for (const Copy& copy : copies_) {
    const Piece& first = buffers_.at(copy.name).second;
    block.resize(static_cast<std::size_t>(copy.piece.bytes)), other.resize(block.size());
    read(first, 0, first.bytes, block.data());
    read(copy.piece, 0, copy.piece.bytes, other.data());
    if (block != other)
      refuse_whole(fmt::format("'{}' is not the same on ranks {} and {}: it has no whole", copy.name, first.holder,
                               copy.piece.holder));
  }
  StateHeader header = header_;
  header.step = step;
  write_state_file(checkpoint + "/" + kWholeFile, header, [&](std::int64_t offset, std::int64_t bytes) {
    block.resize(static_cast<std::size_t>(bytes));
    auto next = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                 [](std::int64_t at, const Piece& piece) { return at < piece.to; });
    --next;
    for (std::int64_t done = 0; done < bytes; ++next) {
      const std::int64_t first = offset + done - next->to, n = std::min(bytes - done, next->bytes - first);
      read(*next, first, n, block.data() + done);
      done += n;
    }
    return static_cast<const std::byte*>(block.data());
  });
  for (std::size_t i = 0; i < parts_.size(); ++i)
    std::filesystem::remove(checkpoint + "/" + part_file_name(static_cast<int>(i)));
}

}  // namespace rehearse::execute
