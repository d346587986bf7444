#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "src/device/device.hpp"

namespace lockstep {

/// Says how a module's parameters are made: where, of which type, from which seed, under
/// which name.
struct ParameterInit {
    Device& device;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
    std::string name;  ///< prefix of the parameters' names, as in PyTorch's state_dict

    /// Returns the settings for a module inside this one: "block" and "mlp" make
    /// "block.mlp".
    ParameterInit child(const std::string& part) const;
};

/// The part of a whole parameter that one holds, if devices share it out: blocks of rows,
/// one below the other, from one column on. Rows that no block names are padding. See
/// src/nn/part.hpp.
struct Part {
    /// Rows [at, at + count) are the whole's [from, from + count).
    struct Rows {
        std::int64_t at = 0;
        std::int64_t from = 0;
        std::int64_t count = 0;
    };
    Shape whole;
    Shape shape;  ///< of the shard
    std::vector<Rows> rows;
    std::int64_t column = 0;  ///< of the whole, where each row begins
};

/// A tensor that is trained, and its gradient.
///
/// Strategies hook in here: `on_use` and `on_release` surround each use by a module, so
/// that a sharded parameter can be gathered just in time; `on_gradient` announces that a
/// backward pass has added its last contribution, so that a reduction can start while
/// backward goes on.
class Parameter {
  public:
    using Hook = std::function<void(Parameter&)>;

    /// Value unset, gradient zero; counted as parameters and gradients by the ledger.
    Parameter(const ParameterInit& init, const std::string& name, Shape shape);
    /// A shard of a whole parameter.
    Parameter(const ParameterInit& init, const std::string& name, Part part);
    /// Over tensors that exist: a shard, or a view into a flat buffer.
    Parameter(std::string name, Tensor values, Tensor gradients);
    Parameter(const Parameter&) = delete;
    Parameter& operator=(const Parameter&) = delete;

    const std::string& name() const { return name_; }
    /// The shape of value and gradient, also while they are absent.
    const Shape& shape() const { return part_.shape; }
    /// All of it, unless it was made as a shard.
    const Part& part() const { return part_; }

    Tensor value;
    Tensor gradient;

    /// All ranks that share the model out hold the same here, and must step alike.
    bool replicated = false;

    /// Uses of the parameter in one backward pass; 2 where two layers are tied. A tied
    /// layer counts itself.
    int uses = 1;

    /// A module is about to read the value or add to the gradient, or has done so. Module
    /// calls them around forward and backward; one call of Module::backward is one use.
    void begin_use();
    void end_use();
    /// A module has added a contribution to the gradient; the last of `uses` announces
    /// it.
    void accumulated();
    /// Fills the gradient, if there is one, with zeros; counts contributions from none.
    void zero_gradient();

    void on_use(Hook hook) { use_hooks_.push_back(std::move(hook)); }
    void on_release(Hook hook) { release_hooks_.push_back(std::move(hook)); }
    void on_gradient(Hook hook) { gradient_hooks_.push_back(std::move(hook)); }

  private:
    std::string name_;
    Part part_;
    int contributions_ = 0;
    std::vector<Hook> use_hooks_;
    std::vector<Hook> release_hooks_;
    std::vector<Hook> gradient_hooks_;
};

}  // namespace lockstep
