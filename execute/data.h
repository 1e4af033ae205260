// What a model is trained on: a text file (bytes as tokens) or a .bin of little-endian uint16 tokens for gpt and llama;
// for cnn and mlp examples made from the seed, each class a pattern of its own under noise, so that there is something
// to learn.
//
// A text is cut into sequences of seq_len tokens whose targets are the next tokens; a last part too short for that is
// left out. Every epoch visits each sequence once, in an order shuffled by (seed, epoch) (Fisher-Yates, Philox).
// Examples are numbered over the run: number n of epoch n / sequences; step s has numbers s * global_batch + [0,
// global_batch), so a step's set of examples is the same under every plan, no example goes to two ranks, and a batch
// may span two epochs. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sim/model/model.h"
#include "sim/program/op.h"

namespace rehearse::execute {

inline constexpr const char* kDefaultText = "/usr/share/common-licenses/GPL-3";  // on every Debian
inline constexpr const char* kDataVariable = "REHEARSE_DATA";                    // names another default

class Data {
 public:
  virtual ~Data() = default;
  // Writes `kind` of the examples `numbers` as the program lays them out: tokens and targets int32 [seq_len, n], labels
  // int32 [n], images and features float [n, ...]. `out` has `elements` of them.
  virtual void load(program::InputKind kind, const std::vector<std::int64_t>& numbers, std::int64_t elements,
                    void* out) = 0;
  virtual std::int64_t examples() const = 0;  // of an epoch; 0: without end
  virtual std::string description() const = 0;
};

// What `given` comes to for gpt and llama: if it is empty, what kDataVariable names, else kDefaultText.
std::string data_file(const std::string& given);

// `file`: for gpt and llama, as of data_file(). Throws InputError if it cannot be
// read, is too short, or has a token the model's vocabulary has not.
std::unique_ptr<Data> open_data(const model::Model& model, std::int64_t seq_len, std::int64_t seed,
                                const std::string& file);

}  // namespace rehearse::execute
