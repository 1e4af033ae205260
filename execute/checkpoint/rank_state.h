// What a rank keeps from one step to the next: every persistent buffer of its role but gradients and the loss -
// parameters, fp32 copies, moments, loss scale, histories of 8-bit scales. The number of the step is the rest of it:
// dropout, routing and the order of the data are drawn by (seed, step) (random.h, data.h). Of parameters and the states
// beside them it is known where each number lies in the whole model (parameters.h), so that they can be cut anew for
// ranks of another grid.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "execute/checkpoint/folder.h"
#include "execute/checkpoint/state_file.h"
#include "execute/rank/rank_memory.h"
#include "execute/timeline.h"
#include "sim/plan/rank_grid.h"
#include "sim/plan/scenario.h"

namespace rehearse::execute {

class RankState {
 public:
  RankState(const Timeline& timeline, const plan::RankGrid& grid, int rank);
  // Of one block of memory that lies as the header says its payload does.
  explicit RankState(StateHeader header);

  const StateHeader& header() const { return header_; }
  std::int64_t payload_bytes() const { return header_.payload_bytes; }
  // All of it, into a payload of payload_bytes().
  void copy_out(const RankMemory& memory, std::byte* payload) const;
  // The bytes of a payload's part, straight from the memory if they lie together there, else gathered into `block`.
  const std::byte* part(const RankMemory& memory, std::int64_t offset, std::int64_t bytes,
                        std::vector<std::byte>& block) const;

  // The place in the rank's memory of what lies there in the payload.
  std::byte* at(const RankMemory& memory, std::int64_t payload_offset) const;
  // Buffers of which no tensor is a part, by their place in header().buffers.
  const std::vector<std::size_t>& whole_buffers() const { return whole_; }

 private:
  void add_tensors(const Timeline& timeline, const plan::RankGrid& grid, int rank);

  StateHeader header_;
  std::vector<std::int64_t> memory_;  // by buffer: its place
  std::vector<std::size_t> whole_;
};

// What is each rank's own, of which no rank of another grid has a place, nor one file for all of them.
struct KeptByRank {
  std::string what, instead;  // a sentence, keys that leave it out
  std::string it = "it";      // or them
};
// The first of it, of a plan that keeps any.
std::optional<KeptByRank> kept_by_rank(const plan::Scenario& scenario);

// A checkpoint that ranks go on from. Safe for several threads.
class SavedRanks {
 public:
  SavedRanks(std::string checkpoint, Manifest manifest)
      : folder_(std::move(checkpoint)), manifest_(std::move(manifest)) {}

  const Manifest& manifest() const { return manifest_; }
  // Into a rank's memory, which holds what a run begins with. `same_plan`: it is the rank of that number that wrote its
  // file. Otherwise its parameters and their states are put together of the files that have parts of them; parts beyond
  // the whole that was saved (a vocabulary padded otherwise) stay as they are. Throws InputError, naming the file: not
  // whole, or of what this rank keeps something is in no file or cannot be cut (codes of 8-bit moments, scales of 8-bit
  // products). The file, if what was read is all of it and nothing else: the rank's own.
  const StateFile* restore(const RankState& state, const RankMemory& memory, bool same_plan);

 private:
  struct Part {
    std::size_t file;
    const StateTensor* tensor;
    const StateRun* run;
  };
  using Parts = std::vector<Part>;  // by where they begin in the whole

  const StateFile& file(std::size_t rank);
  void index();
  void restore_tensor(const StateTensor& tensor, const RankState& state, const RankMemory& memory);
  void restore_buffer(const StateBuffer& buffer, const RankState& state, const RankMemory& memory);

  const std::string folder_;
  const Manifest manifest_;
  std::mutex mutex_;
  std::map<std::size_t, std::unique_ptr<StateFile>> files_;
  std::map<std::pair<std::string, std::string>, Parts> parts_;  // by kind and name
  bool indexed_ = false;
};

}  // namespace rehearse::execute
