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

/// Says how a module's parameters are made: on which device, with which type, seed and
/// name.
struct ParameterInit {
    Device& device;
    DType dtype = DType::f32;
    std::uint64_t seed = 0;
    std::string name;  ///< prefix of the parameters' names, as in PyTorch's state_dict
    /// If false, value and gradient are absent until a strategy makes them.
    bool allocate = true;
    bool trains = true;  ///< if false, only the gradient is absent

    /// Returns the settings for a model that only infers.
    ParameterInit for_inference() const;
    /// Returns the settings for a module inside this one: "block" and "mlp" make
    /// "block.mlp".
    ParameterInit child(const std::string& part) const;
};

/// How a parameter is placed over the ranks along one axis of a mesh.
struct Placement {
    enum class Kind : std::uint8_t {
        sharded,  ///< each rank has its own part, Parameter::part()
        /// Each rank has its own part, and the part's gradient is the sum of all ranks'
        /// terms. The strategy that reduces and scatters the terms says when the sum is
        /// complete.
        sharded_sum,
        replicated,  ///< all ranks have the same value and compute the whole gradient
        /// All ranks have the same value, and each rank computes its own terms of the
        /// gradient, which is the sum of all terms.
        partial
    };
    Communicator* line = nullptr;
    Kind kind = Kind::replicated;
    SourceLine at{};  ///< where this was declared

    bool is_sharded() const { return kind == Kind::sharded || kind == Kind::sharded_sum; }
    /// Returns whether a rank's gradient has only the rank's own terms before the sum.
    bool has_terms() const { return kind == Kind::partial || kind == Kind::sharded_sum; }
};

/// The purpose for which a module uses a parameter. `backward` means both of its halves.
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
/// Strategies add hooks here. `on_use` and `on_release` surround each use by a module, so
/// that a sharded parameter can be gathered in time. `on_pass` announces the last
/// contribution of a backward pass, and `on_gradient` the last contribution of a step, so
/// that a reduction can start while backward runs.
class Parameter {
  public:
    using Hook = std::function<void(Parameter&)>;
    using UseHook = std::function<void(Parameter&, Use)>;
    using HookId = int;

    /// Makes an unset value and a zero gradient, unless `init` says that they are absent.
    /// The ledger counts them as parameters and gradients.
    Parameter(const ParameterInit& init, const std::string& name, Shape shape);
    /// A shard of a whole parameter.
    Parameter(const ParameterInit& init, const std::string& name, Part part);
    /// Uses existing tensors: views of a flat buffer, or `part` of a whole tensor.
    Parameter(std::string name, Tensor values, Tensor gradients);
    Parameter(std::string name, Tensor values, Tensor gradients, Part part);
    Parameter(const Parameter&) = delete;
    Parameter& operator=(const Parameter&) = delete;

    const std::string& name() const { return name_; }
    /// The shape of value and gradient, even while they are absent.
    const Shape& shape() const { return part_.shape; }
    DType dtype() const { return dtype_; }
    /// The whole tensor, unless the parameter was made as a shard.
    const Part& part() const { return part_; }
    /// Labels a tensor with the parameter's name, after a strategy made the tensor as
    /// value or gradient.
    void name_tensor(const Tensor& tensor) const;

    Tensor value;
    Tensor gradient;

    /// Sets how the value is initialized, and fills the value if it exists. If the value
    /// is made later, fill_initial() fills it.
    using Fill = std::function<void(const Parameter&)>;
    void set_initial(Fill fill);
    void fill_initial() const;
    const Fill& initial() const { return initial_; }

    /// The placement along each axis of the model's mesh; see src/parallel/placement.hpp.
    /// An axis that is not listed does not concern this parameter.
    std::vector<Placement> placements;
    /// True if the gradient was summed along every axis along which it is partial. The
    /// code that sums the gradient sets this; the next contribution clears it.
    bool complete = false;

    /// How often the value was set by something other than training, such as a loaded
    /// checkpoint. Copies of the value, such as a master, must then be made again.
    int times_set = 0;

    /// The number of uses of the parameter in one backward pass: 2 if two layers are
    /// tied. A layer that uses another layer's weight adds 1.
    int uses = 1;

    /// Module calls these around forward and backward: before it reads the value or adds
    /// to the gradient, and after.
    void begin_use(Use use);
    void end_use(Use use);
    /// A module calls this after each contribution to the gradient. Announces the last
    /// contribution of a backward pass, and the last contribution of a step.
    void accumulated();
    /// A strategy calls this after it summed the gradient of a shard (no module adds to
    /// it). Marks the gradient as complete, and announces a step's last contribution.
    void set_complete();
    /// Begins a step of `passes` backward passes: fills the gradient, if there is one,
    /// with zeros, and counts contributions from 0.
    void zero_gradient(int passes = 1);

    /// These functions add a hook, and return the hook's id for remove_hook().
    HookId on_use(UseHook hook);
    HookId on_release(UseHook hook);
    HookId on_pass(Hook hook);
    HookId on_gradient(Hook hook);
    /// Removes a hook. Must not be called from a hook of this parameter.
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

/// Declares the parameter's replicas again, after its value was made or moved. Only the
/// checker needs this.
void declare_again(const Parameter& parameter);

}  // namespace lockstep
