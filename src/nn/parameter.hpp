#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "src/core/part.hpp"
#include "src/device/device.hpp"

namespace lockstep {

class Communicator;

/// Says how a module's parameters are made: where, of which type, from which seed, under
/// which name.
struct ParameterInit {
    Device& device;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
    std::string name;  ///< prefix of the parameters' names, as in PyTorch's state_dict
    /// Without, value and gradient are absent until a strategy makes them.
    bool allocate = true;
    bool trains = true;  ///< without, the gradient alone is absent

    /// Returns the settings for a model that only infers.
    ParameterInit for_inference() const;
    /// Returns the settings for a module inside this one: "block" and "mlp" make
    /// "block.mlp".
    ParameterInit child(const std::string& part) const;
};

/// How a parameter lies along one axis of a mesh, that is, over the ranks of a line.
struct Placement {
    enum class Kind : std::uint8_t {
        sharded,  ///< each rank holds a part of its own, Parameter::part()
        /// Each rank holds a part of its own, whose gradient is the sum of all ranks'
        /// terms: who reduces and scatters them says when it is complete.
        sharded_sum,
        replicated,  ///< all hold the same, and each gets the whole gradient by itself
        /// All hold the same, and each gets its terms of the gradient, which is their
        /// sum.
        partial
    };
    Communicator* line = nullptr;
    Kind kind = Kind::replicated;
    SourceLine at{};  ///< where that was said

    bool is_sharded() const { return kind == Kind::sharded || kind == Kind::sharded_sum; }
    /// A rank's gradient is only its own terms of a sum, until that is taken.
    bool has_terms() const { return kind == Kind::partial || kind == Kind::sharded_sum; }
};

/// A module uses a parameter for one of these. `backward` is both of its halves at once.
enum class Use : std::uint8_t { forward, backward, backward_input, backward_weight };

/// Returns whether the use reads the value.
constexpr bool reads_value(Use use) {
    return use != Use::backward_weight;
}
/// Returns whether the use adds to the gradient.
constexpr bool adds_gradient(Use use) {
    return use == Use::backward || use == Use::backward_weight;
}

/// A tensor that is trained, and its gradient.
///
/// Strategies hook in here: `on_use` and `on_release` surround each use by a module, so
/// that a sharded parameter can be gathered just in time; `on_pass` announces that the
/// last contribution of a backward pass has been added, and `on_gradient` that the last
/// of a step has, so that a reduction can start while backward goes on.
class Parameter {
  public:
    using Hook = std::function<void(Parameter&)>;
    using UseHook = std::function<void(Parameter&, Use)>;
    using HookId = int;

    /// Value unset, gradient zero, both absent if `init` says so; counted as parameters
    /// and gradients by the ledger.
    Parameter(const ParameterInit& init, const std::string& name, Shape shape);
    /// A shard of a whole parameter.
    Parameter(const ParameterInit& init, const std::string& name, Part part);
    /// Over tensors that exist: a view into a flat buffer, or that part of a whole.
    Parameter(std::string name, Tensor values, Tensor gradients);
    Parameter(std::string name, Tensor values, Tensor gradients, Part part);
    Parameter(const Parameter&) = delete;
    Parameter& operator=(const Parameter&) = delete;

    const std::string& name() const { return name_; }
    /// The shape of value and gradient, also while they are absent.
    const Shape& shape() const { return part_.shape; }
    DType dtype() const { return dtype_; }
    /// All of it, unless it was made as a shard.
    const Part& part() const { return part_; }
    /// Gives the tensor this name: its value or its gradient, made by a strategy.
    void name_tensor(const Tensor& tensor) const;

    Tensor value;
    Tensor gradient;

    /// Says what the value begins as, and fills it if it is there; fill_initial() does so
    /// again, for a value that was made later.
    using Fill = std::function<void(const Parameter&)>;
    void set_initial(Fill fill);
    void fill_initial() const;
    const Fill& initial() const { return initial_; }

    /// How it lies along each axis of the mesh that the model is spread over; see
    /// src/parallel/placement.hpp. An axis that is not here does not concern it.
    std::vector<Placement> placements;
    /// The gradient has been added up along every axis where it is partial. Whoever does
    /// that says so; the next contribution takes it back.
    bool complete = false;

    /// How often the value was set by something else than training, as by a checkpoint
    /// that is loaded: who keeps a copy of it, as a master is, makes that again.
    int times_set = 0;

    /// Uses of the parameter in one backward pass; 2 where two layers are tied. A tied
    /// layer counts itself.
    int uses = 1;

    /// A module is about to read the value or add to the gradient, or has done so. Module
    /// calls them around forward and backward.
    void begin_use(Use use);
    void end_use(Use use);
    /// A module has added a contribution to the gradient; the last of a backward pass,
    /// and of a step, are announced.
    void accumulated();
    /// A strategy has added the gradient up: says that it is complete, and announces it
    /// as the last of a step. For shards, to which no module adds.
    void set_complete();
    /// Begins a step of so many backward passes: fills the gradient, if there is one,
    /// with zeros, and counts contributions from none.
    void zero_gradient(int passes = 1);

    /// Each calls the hook from now on, and gives the number by which it is taken back.
    HookId on_use(UseHook hook);
    HookId on_release(UseHook hook);
    HookId on_pass(Hook hook);
    HookId on_gradient(Hook hook);
    /// Takes back one of them; not from within a hook of this parameter.
    void remove_hook(HookId id);

  private:
    template <typename Function>
    using Hooks = std::vector<std::pair<HookId, Function>>;

    std::string name_;
    Part part_;
    DType dtype_;
    Fill initial_;
    int passes_ = 1;
    int contributions_ = 0;
    Hooks<UseHook> use_hooks_;
    Hooks<UseHook> release_hooks_;
    Hooks<Hook> pass_hooks_;
    Hooks<Hook> gradient_hooks_;
    HookId next_hook_ = 0;
};

/// Says to the checker that a value which was made or moved since is the replica that the
/// parameter was said to be. Nothing else needs it.
void declare_again(const Parameter& parameter);

}  // namespace lockstep
