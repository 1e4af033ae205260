// What a model is trained on: a text file (bytes as tokens) or a .bin of little-endian uint16 tokens for transformers
// (encoder_data.h: what bert makes of it; span_data.h: what t5 does);
// (sparse_data.h: what lists that read tokens or sparse features train on);
// for cnn and mlp examples made from the seed, so that there is something to learn. With classes (cross-entropy) each
// class is a pattern of its own under noise. With numbers (mean squared error) inputs x are uniform in [-1, 1) and the
// values are W x / sqrt(width) + 0.1 e: W [outputs, width], uniform in [-1, 1), is the seed's; e, uniform in [-1, 1),
// and x are the example's number's. A model that finds W is left with the mean of (0.1 e)^2, a loss of 0.01 / 3.
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
  // int32 [n], sparse int32 [feature][n, look-ups], images, features and values float [n, ...]. `out` has `elements` of
  // them.
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
