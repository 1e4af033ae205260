// The size of the image in front of a convolution of a cnn.
#pragma once

#include "sim/model/model.h"

namespace rehearse::lower {

struct Image {
  std::int64_t channels = 0, size = 0;
};

// In front of convolution `index`; behind the last one if it is the number of convolutions.
inline Image image_before(const model::Model& model, std::int64_t index) {
  Image image{model.image_channels, model.image_size};
  for (std::int64_t i = 0; i < index; ++i) {
    image.channels = model.convolutions[static_cast<std::size_t>(i)].channels;
    image.size /= model.convolutions[static_cast<std::size_t>(i)].pool;
  }
  return image;
}

}  // namespace rehearse::lower
