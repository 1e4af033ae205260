// What an encoder with a decoder (t5) is trained on: span corruption of a text as Raffel et al. 2020 make it (arXiv
// 1910.10683, section 3.1.4; google-research/text-to-text-transfer-transformer t5/data/preprocessors.py,
// random_spans_noise_mask). A part of the text is cut in turns into pieces that stay and spans that are taken out, of
// random lengths, as many of each. The encoder reads the pieces, each followed by a token that stands for the span; the
// decoder's targets are these tokens, each followed by its span. Both end with one more token. The decoder reads its
// targets moved by one, after token 0. The k-th span's token is the model's last but k, the end is below those of all
// spans. Lengths are exact, without padding: of the decoder's tokens but the end a quarter stand for spans, a mean
// length of 3. All of it depends on the seed and the example's number alone.
#pragma once

#include <memory>

#include "execute/data.h"

namespace rehearse::execute {

struct SpanLengths {
  std::int64_t spans = 0, noise = 0;  // noise: tokens that are taken out
  std::int64_t text = 0;              // of the text that an example is made of
};
SpanLengths span_lengths(const model::Model& model, std::int64_t seq_len);

// Tokens of the text are below this.
inline std::int64_t span_text_vocab(const model::Model& model, std::int64_t seq_len) {
  return model.vocab - span_lengths(model, seq_len).spans - 1;
}

// `text` gives tokens in sequences of span_lengths().text. Loads tokens int32 [seq_len, n]; decoder_tokens and targets
// int32 [model.decoder_tokens(seq_len), n].
std::unique_ptr<Data> make_span_data(std::unique_ptr<Data> text, const model::Model& model, std::int64_t seq_len,
                                     std::int64_t seed);

}  // namespace rehearse::execute
