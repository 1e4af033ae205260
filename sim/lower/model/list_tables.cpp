// A recommender's sparse features (Naumov et al. 2019, arXiv 1906.00091): a table for each, whose rows are looked up
// and added; the vectors that come of it stand behind the dense features. Sharded, each data-parallel rank has some of
// the tables whole (plan/table_shards.h): ranks trade the numbers of the rows, the owner looks up for all and sends
// each its examples' vectors, and in backward gets the vectors' gradients.
#include <cmath>

#include "sim/base/check.h"
#include "sim/lower/model/list_vectors.h"
#include "sim/lower/model/load.h"

namespace rehearse::lower {
namespace {

using program::AveragePool;
using program::BagPart;
using program::Collective;
using program::CollectiveKind;
using program::Elementwise;
using program::ElementwiseFn;
using program::EmbeddingBags;
using program::Gemm;
using program::StreamKind;
using program::StridedCopy;

class TablesPart : public LayerPart {
 public:
  TablesPart(const UnitScope& scope, const model::Layer& layer, model::Extent in, std::string name)
      : s_(scope), c_(scope.context), layer_(layer), in_(in), name_(std::move(name)) {}

  bool has_parameters() const override { return true; }
  Kept kept(bool) const override { return {}; }

  void declare_parameters() override {
    for (std::size_t f = first(); f < end(); ++f) {
      const std::int64_t rows = layer_.rows[f];
      ParamSpec spec{name_ + "." + std::to_string(f) + ".weight",
                     {rows, layer_.width},
                     -1,
                     program::Init::Kind::uniform,
                     1 / std::sqrt(static_cast<double>(rows))};
      spec.table = true;
      spec.owned = sharded();
      spec.sparse = sparse();
      tables_.push_back(s_.parameters.add(s_.number, std::move(spec)));
    }
  }

  void declare(BufferId x, BufferId y, bool) override {
    x_ = x, y_ = y;
    const auto ids = [&](const std::string& what, std::int64_t n) {
      return s_.builder.activation(name_ + what, DType::i32, {n}, Lifetime::micro_batch);
    };
    ids_ = ids(".ids", ids_of(0, layer_.rows.size()));
    own_ids_ = sharded() ? ids(".ids.own", c_.plan().data * ids_of(first(), end())) : ids_;
    if (c_.scenario.training.sparse_optimizer != plan::SparseOptimizer::adagrad) return;
    for (std::size_t f = first(); f < end(); ++f)
      sums_.push_back(s_.builder.add_buffer({name_ + "." + std::to_string(f) + ".squares",
                                             DType::f32,
                                             {layer_.rows[f]},
                                             program::BufferClass::optimizer,
                                             Lifetime::persistent,
                                             -1,
                                             0,
                                             0,
                                             {},
                                             {program::Init::Kind::zeros, 0, {}, -1}}));
  }

  void forward(BufferId y, bool again) override {
    RoleBuilder& b = s_.builder;
    if (!again) {
      load_input(s_, name_ + ".ids.load", program::InputKind::sparse, DType::i32, ids_, false);
      if (sharded()) trade(name_ + ".ids", ids_, own_ids_, DType::i32, c_.table_parts.ids, false);
    }
    if (y < 0) return;
    const BufferId vectors = part_of(y, "vectors", 1, layer_.rows.size());
    b.op(name_ + ".features", Elementwise{ElementwiseFn::copy, c_.batch * layer_.width}, c_.compute, {{x_}},
         {{part_of(y, "first", 0, 1)}});
    std::vector<Operand> reads{{own_ids_}};
    for (const ParamId table : tables_) reads.push_back({s_.parameters.value(table)});
    const BufferId looked_up = sharded() ? own_vectors(name_) : vectors;
    b.op(name_ + ".forward", shape(BagPart::forward), c_.compute, reads, {{looked_up}});
    if (sharded()) trade(name_ + ".vectors", looked_up, vectors, c_.compute, c_.table_parts.vectors, true);
  }

  BufferId backward(BufferId gradient, bool input_gradient) override {
    RoleBuilder& b = s_.builder;
    BufferId vectors = part_of(gradient, "vectors", 1, layer_.rows.size());
    if (sharded()) {
      const BufferId own = own_vectors("d_" + name_);
      trade("d_" + name_ + ".vectors", vectors, own, c_.compute, c_.table_parts.vectors, false);
      vectors = own;
    }
    std::vector<Operand> reads{{vectors}, {own_ids_}}, writes;
    for (const ParamId table : tables_)
      writes.push_back({sparse() ? s_.parameters.value(table) : s_.parameters.accumulated_gradient(table)});
    for (const BufferId sum : sums_) writes.push_back({sum});
    reads.insert(reads.end(), writes.begin(), writes.end());
    b.op(name_ + (sparse() ? ".update" : ".backward"), shape(sparse() ? BagPart::update : BagPart::backward),
         c_.compute, reads, writes);
    for (const ParamId table : tables_) s_.parameters.gradient_done(table);
    if (!input_gradient) return -1;
    const BufferId dx = b.workspace(b.here("d_" + name_ + ".input"), c_.compute, batch_shape(c_, in_));
    b.op("d_" + name_ + ".features", Elementwise{ElementwiseFn::copy, c_.batch * layer_.width}, c_.compute,
         {{part_of(gradient, "first", 0, 1)}}, {{dx}});
    return dx;
  }

 private:
  bool sharded() const { return c_.groups.tables >= 0; }
  bool sparse() const { return c_.scenario.training.sparse_optimizer != plan::SparseOptimizer::none; }
  // This rank's tables.
  std::size_t first() const { return sharded() ? c_.first_table.at(c_.table_place) : 0; }
  std::size_t end() const { return sharded() ? c_.first_table.at(c_.table_place + 1) : layer_.rows.size(); }
  // Of one rank's examples.
  std::int64_t ids_of(std::size_t from, std::size_t to) const {
    std::int64_t sum = 0;
    for (std::size_t f = from; f < to; ++f) sum += c_.batch * layer_.lookups_of(f);
    return sum;
  }
  EmbeddingBags shape(BagPart part) const {
    EmbeddingBags bags;
    bags.part = part;
    bags.slices = sharded() ? c_.plan().data : 1;
    bags.batch = c_.batch;
    bags.cols = layer_.width;
    bags.mean = layer_.pooling == model::Pooling::mean;
    bags.adagrad = part == BagPart::update && !sums_.empty();
    for (std::size_t f = first(); f < end(); ++f) bags.tables.push_back({layer_.rows[f], layer_.lookups_of(f)});
    return bags;
  }
  // Of all ranks' examples: [rank, own table, example, width].
  BufferId own_vectors(const std::string& name) const {
    const std::int64_t tables = static_cast<std::int64_t>(end() - first());
    return s_.builder.workspace(s_.builder.here(name + ".looked_up"), c_.compute,
                                {c_.plan().data, tables, c_.batch, layer_.width});
  }
  // Vectors [from, from + count) of each example.
  BufferId part_of(BufferId of, const std::string& what, std::int64_t from, std::size_t count) const {
    RoleBuilder& b = s_.builder;
    const program::Buffer& whole = b.buffer(of);
    const std::int64_t each = c_.batch * layer_.width;
    return b.view(b.here(whole.name + "." + what), whole.is_view() ? whole.base : of,
                  (whole.is_view() ? whole.offset : 0) + from * each,
                  {static_cast<std::int64_t>(count), c_.batch, layer_.width});
  }
  // To the owners, or `back` from them.
  void trade(const std::string& name, BufferId from, BufferId to, DType type, std::int32_t parts, bool back) {
    Collective all_to_all{CollectiveKind::all_to_all, c_.groups.tables, s_.builder.buffer(back ? to : from).elements()};
    all_to_all.parts = parts;
    all_to_all.back = back;
    all_to_all.own = s_.builder.buffer(back ? from : to).elements();
    s_.builder.op(name + ".all_to_all", all_to_all, type, {{from}}, {{to}}, StreamKind::expert);
  }

  const UnitScope s_;
  const Context& c_;
  model::Layer layer_;
  model::Extent in_;
  std::string name_;
  std::vector<ParamId> tables_;
  std::vector<BufferId> sums_;
  BufferId x_ = -1, y_ = -1, ids_ = -1, own_ids_ = -1;
};

// What makes features of vectors [vector, example, width], which are copied together by example first.
class OfVectors : public LayerPart {
 public:
  OfVectors(const UnitScope& scope, model::Extent in, std::string name)
      : s_(scope), c_(scope.context), in_(in), name_(std::move(name)) {}
  void declare(BufferId x, BufferId, bool) override { x_ = x; }

 protected:
  BufferId space(const std::string& name, std::vector<std::int64_t> shape) const {
    return s_.builder.workspace(s_.builder.here(name), c_.compute, std::move(shape));
  }
  void turn(const std::string& name, BufferId from, BufferId to, bool back) const {
    const std::int64_t n = in_.vectors, w = in_.channels, batch = c_.batch;
    const program::Strides vectors_first{batch * w, w, 0}, examples_first{w, n * w, 0};
    const StridedCopy copy{n, batch, w, back ? examples_first : vectors_first, back ? vectors_first : examples_first};
    s_.builder.op(name, copy, c_.compute, {{from}}, {{to}});
  }
  BufferId gradient_of_input() const { return space("d_" + name_ + ".input", batch_shape(c_, in_)); }

  const UnitScope s_;
  const Context& c_;
  model::Extent in_;
  std::string name_;
  BufferId x_ = -1;
};

class FlattenPart : public OfVectors {
 public:
  using OfVectors::OfVectors;
  Kept kept(bool) const override { return {}; }
  void forward(BufferId y, bool) override { turn(name_ + ".forward", x_, y, false); }
  BufferId backward(BufferId gradient, bool) override {
    const BufferId dx = gradient_of_input();
    turn(name_ + ".backward", gradient, dx, true);
    return dx;
  }
};

// A mean over tokens: of numbers that lie [example, width, token].
class MeanPart : public OfVectors {
 public:
  using OfVectors::OfVectors;
  Kept kept(bool) const override { return {}; }
  void forward(BufferId y, bool) override {
    const BufferId turned = space(name_ + ".turned", {c_.batch, in_.channels, in_.vectors});
    s_.builder.op(name_ + ".turn", turned_copy(false), c_.compute, {{x_}}, {{turned}});
    s_.builder.op(name_ + ".forward", shape(false), c_.compute, {{turned}}, {{y}});
  }
  BufferId backward(BufferId gradient, bool) override {
    const BufferId turned = space("d_" + name_ + ".turned", {c_.batch, in_.channels, in_.vectors});
    s_.builder.op(name_ + ".backward", shape(true), c_.compute, {{gradient}}, {{turned}});
    const BufferId dx = gradient_of_input();
    s_.builder.op("d_" + name_ + ".turn", turned_copy(true), c_.compute, {{turned}}, {{dx}});
    return dx;
  }

 private:
  AveragePool shape(bool backward) const { return {backward, c_.batch, in_.channels, in_.vectors}; }
  StridedCopy turned_copy(bool back) const {
    const std::int64_t rows = c_.batch * in_.channels;
    const program::Strides tokens_first{rows, 1, 0}, tokens_last{1, in_.vectors, 0};
    return {in_.vectors, rows, 1, back ? tokens_last : tokens_first, back ? tokens_first : tokens_last};
  }
};

// x x^T of each example's vectors, of which what is below the diagonal stands behind the first vector.
class PairsPart : public OfVectors {
 public:
  using OfVectors::OfVectors;
  Kept kept(bool) const override { return {true, false}; }
  void forward(BufferId y, bool) override {
    const std::int64_t n = in_.vectors;
    const BufferId turned = by_example(name_), products = space(name_ + ".products", {c_.batch, n, n});
    Gemm gemm{n, n, in_.channels, c_.batch};
    gemm.transpose_b = true;
    s_.builder.op(name_ + ".products", gemm, c_.compute, {{turned}, {turned}}, {{products}});
    s_.builder.op(name_ + ".forward", shape(false), c_.compute, {{products}, {first_of(x_, "first")}}, {{y}});
  }
  BufferId backward(BufferId gradient, bool) override {
    RoleBuilder& b = s_.builder;
    const std::int64_t n = in_.vectors, w = in_.channels;
    const BufferId products = space("d_" + name_ + ".products", {c_.batch, n, n});
    const BufferId first = space("d_" + name_ + ".first", {c_.batch, w});
    b.op(name_ + ".backward", shape(true), c_.compute, {{gradient}}, {{products}, {first}});
    const BufferId turned = by_example("d_" + name_), d_turned = space("d_" + name_ + ".turned", {c_.batch, n, w});
    b.op("d_" + name_ + ".vectors", Gemm{n, w, n, c_.batch}, c_.compute, {{products}, {turned}}, {{d_turned}});
    const BufferId dx = gradient_of_input();
    turn("d_" + name_ + ".turn", d_turned, dx, true);
    const BufferId to = first_of(dx, "first");
    b.op("d_" + name_ + ".add", Elementwise{ElementwiseFn::accumulate, c_.batch * w}, c_.compute, {{first}, {to}},
         {{to}});
    return dx;
  }

 private:
  BufferId by_example(const std::string& name) const {
    const BufferId turned = space(name + ".by_example", {c_.batch, in_.vectors, in_.channels});
    turn(name + ".by_example", x_, turned, false);
    return turned;
  }
  BufferId first_of(BufferId of, const std::string& what) const {
    const program::Buffer& whole = s_.builder.buffer(of);
    return s_.builder.view(s_.builder.here(whole.name + ".of_pairs." + what), whole.is_view() ? whole.base : of,
                           whole.is_view() ? whole.offset : 0, {c_.batch, in_.channels});
  }
  program::Pairs shape(bool backward) const { return {backward, c_.batch, in_.vectors, in_.channels}; }
};

}  // namespace

std::unique_ptr<LayerPart> make_tables(const UnitScope& scope, const model::Layer& layer, model::Extent in,
                                       const std::string& name) {
  return std::make_unique<TablesPart>(scope, layer, in, name);
}
std::unique_ptr<LayerPart> make_pairs(const UnitScope& scope, model::Extent in, const std::string& name) {
  return std::make_unique<PairsPart>(scope, in, name);
}
std::unique_ptr<LayerPart> make_flatten(const UnitScope& scope, model::Extent in, const std::string& name) {
  return std::make_unique<FlattenPart>(scope, in, name);
}
std::unique_ptr<LayerPart> make_mean_of_vectors(const UnitScope& scope, model::Extent in, const std::string& name) {
  return std::make_unique<MeanPart>(scope, in, name);
}

}  // namespace rehearse::lower
