// The keys of models that read images: residual networks and vision transformers; see key_table_model.cpp.
#include "sim/model/model.h"
#include "sim/plan/keys.h"

namespace rehearse::plan::detail {

std::vector<Key> vision_keys() {
  return {
      {.path = "model.residual_block",
       .type = KeyType::choice,
       .fallback = "none",
       .values = {"none", "basic", "bottleneck"},
       .families = "cnn",
       .meaning = "a residual network (He et al. 2015) in the place of `convolutions`: blocks of two 3x3 convolutions "
                  "(`basic`: ResNet-18, -34) or of 1x1, 3x3, 1x1 (`bottleneck`: -50, -101, -152), each with batch "
                  "normalisation; `widths` are then the classes alone",
       .example = "bottleneck",
       .related = "model.residual_layers model.sync_batch_norm model.widths",
       .field = &model::Model::residual_block},
      {.path = "model.residual_layers",
       .type = KeyType::integers,
       .origin = Default::derived,
       .fallback = "required with residual_block",
       .min = 1,
       .max = 1000,
       .families = "cnn",
       .item = "number of blocks",
       .meaning = "residual blocks of each stage, whose maps have half the size and twice the channels of the stage's "
                  "before",
       .example = "[3, 4, 6, 3]",
       .related = "model.residual_block",
       .field = &model::Model::residual_layers},
      {.path = "model.residual_groups",
       .type = KeyType::integer,
       .fallback = "1",
       .min = 1,
       .max = 1 << 16,
       .families = "cnn",
       .meaning =
           "groups of a bottleneck's 3x3 convolution, which reads and makes groups x residual_group_width maps in "
           "the first stage and twice as many in each after it (ResNeXt 32x4d: 32)",
       .example = "32",
       .related = "model.residual_group_width model.residual_block",
       .field = &model::Model::residual_groups},
      {.path = "model.residual_group_width",
       .type = KeyType::integer,
       .fallback = "64",
       .min = 1,
       .max = 1 << 16,
       .families = "cnn",
       .meaning = "maps of each of these groups in the first stage (ResNeXt 32x4d: 4; torchvision's width_per_group)",
       .example = "4",
       .related = "model.residual_groups",
       .field = &model::Model::residual_group_width},
      {.path = "model.squeeze_ratio",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 1 << 16,
       .families = "cnn",
       .meaning =
           "squeeze-and-excitation (Hu et al. 2018) behind the last convolution of each residual block: the means "
           "of its maps, a linear layer to this many times fewer, ReLU, one back and a sigmoid, whose outputs "
           "the maps are multiplied by; 0: none",
       .example = "16",
       .related = "model.squeeze_width model.residual_block",
       .field = &model::Model::squeeze_ratio},
      {.path = "model.squeeze_width",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 1 << 16,
       .families = "cnn",
       .meaning = "the same with this many outputs of the first linear layer in every block, in the place of "
                  "squeeze_ratio (NVIDIA's SE-ResNeXt: 16); 0: none",
       .example = "16",
       .related = "model.squeeze_ratio",
       .field = &model::Model::squeeze_width},
      {.path = "model.sync_batch_norm",
       .type = KeyType::boolean,
       .fallback = "false",
       .families = "cnn custom",
       .meaning = "batch normalisation over the examples of all data-parallel ranks' micro-batches, by two all-reduces "
                  "of sums (torch.nn.SyncBatchNorm); `false`: over each rank's own",
       .example = "true",
       .related = "model.residual_block plan.micro_batch",
       .field = &model::Model::sync_batch_norm},
      {.path = "model.map_layout",
       .type = KeyType::choice,
       .origin = Default::framework,
       .values = {model::kMapLayoutNames.begin(), model::kMapLayoutNames.end()},
       .families = "cnn custom",
       .meaning =
           "how maps lie in memory, which costs alone depend on: `channels_last` (NHWC, what tensor cores read), "
           "`channels_first` (NCHW, PyTorch's default: tensor cores' convolutions transpose operands and results), "
           "`channels_last_16bit` (NCHW in fp32)",
       .example = "channels_last",
       .related = "framework training.precision",
       .field = &model::Model::map_layout,
       .framework = [](const FrameworkProfile& p) -> std::string {
         return std::string(model::kMapLayoutNames[static_cast<std::size_t>(p.map_layout)]);
       }},
      {.path = "model.patch",
       .type = KeyType::integer,
       .origin = Default::required,
       .min = 1,
       .max = 1 << 10,
       .families = "vit",
       .meaning = "width and height of the patches that an image is cut into, each a token; divides `image.size`",
       .example = "16",
       .related = "model.image",
       .field = &model::Model::patch},
      {.path = "model.classes",
       .type = KeyType::integer,
       .origin = Default::required,
       .min = 1,
       .max = 1 << 20,
       .families = "vit",
       .meaning = "classes of images, which the head tells from the class token",
       .example = "1000",
       .field = &model::Model::classes},
  };
}

}  // namespace rehearse::plan::detail
