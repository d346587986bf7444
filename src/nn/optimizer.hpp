#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/nn/parameter.hpp"

namespace lockstep {

/// Updates parameters by their gradients.
///
/// The constructor makes the state as zeros, so that memory does not grow at the first
/// step; the ledger counts it as optimizer. The parameters must outlive the optimizer.
class Optimizer {
  public:
    virtual ~Optimizer() = default;
    Optimizer(const Optimizer&) = delete;
    Optimizer& operator=(const Optimizer&) = delete;

    /// Updates every parameter once from its gradient; the gradient does not change.
    void step(SourceLine at = SourceLine::here());
    /// Updates only that parameter, for callers that have its gradient before the other
    /// gradients. Each parameter counts its own steps. Throws UsageError if the parameter
    /// belongs to another optimizer.
    void step(const Parameter& parameter, SourceLine at = SourceLine::here());

    const std::vector<Parameter*>& parameters() const { return parameters_; }
    /// Throws a UsageError that begins with `who` unless the optimizer's parameters are
    /// exactly these, in any order.
    void require_of(const char* who, const std::vector<Parameter*>& parameters) const;
    /// A tensor of the state, in the parameter's shape. If the parameter is a shard, the
    /// tensor is the state of this shard.
    struct State {
        std::string name;  ///< such as "exp_avg/hidden.weight", with PyTorch's words
        Tensor tensor;
        const Parameter* parameter;
    };
    /// All state, for records and checkpoints.
    const std::vector<State>& state() const { return state_; }
    /// Returns how many updates each of parameters() has had.
    const std::vector<std::int64_t>& steps() const { return steps_; }
    /// Sets how many updates each parameter has had, as read from a checkpoint. Throws
    /// UsageError unless there is one number per parameter, and no number is negative.
    void set_steps(std::vector<std::int64_t> steps);

  protected:
    /// Throws UsageError if a parameter is absent or given twice.
    explicit Optimizer(std::vector<Parameter*> parameters);

    struct OfGroups {};

    void add_state(State state) { state_.push_back(std::move(state)); }
    /// Makes zeros in each parameter's shape, and enters them into state() under `name`.
    std::vector<Tensor> make_state(const char* name);

  private:
    /// `step` is the parameter's own step, from 1.
    virtual void do_step(std::size_t index, std::int64_t step, SourceLine at) = 0;
    virtual void steps_were_set() {}

    std::vector<Parameter*> parameters_;
    std::vector<State> state_;
    std::vector<std::int64_t> steps_;
};

/// Keeps f32 copies (masters) of bf16 parameters. Another optimizer updates the masters
/// by the bf16 gradients, and the masters are rounded into the parameters. So updates
/// that are too small for bf16 are not lost (Micikevicius et al. 2018, 1710.03740,
/// section 3.1).
///
///     MasterWeights optimizer(model.parameters(), [](std::vector<Parameter*> masters) {
///         return std::make_unique<AdamW>(std::move(masters));
///     });
///
/// With AdamW this needs 16 bytes per parameter: 2 for its value, 2 for its gradient, 4
/// for its master, 8 for the two moments. The state is "master/NAME" and the other
/// optimizer's state. A parameter that is not bf16 has no master: the other optimizer
/// updates the parameter directly.
///
/// Losses need no scaling: bf16 has f32's exponents, and its smallest number is 2^-133.
/// The smallest number of f16 is 2^-24, so small gradients become 0 unless the loss is
/// multiplied before backward and the gradients are divided after it (section 3.2).
class MasterWeights : public Optimizer {
  public:
    using Make = std::function<std::unique_ptr<Optimizer>(std::vector<Parameter*>)>;

    /// Masters start from the parameters' values at construction. Later the values and
    /// gradients may move: each step reads them where they then are. If a parameter
    /// was declared as a replica, its master is a replica, too. If a checkpoint loads
    /// values but not the optimizer, masters are made again.
    MasterWeights(std::vector<Parameter*> parameters, const Make& make);

    /// The optimizer that updates masters; its options may be changed.
    Optimizer& of_masters() { return *optimizer_; }

  private:
    void do_step(std::size_t index, std::int64_t step, SourceLine at) override;
    void steps_were_set() override;

    std::vector<std::unique_ptr<Parameter>> masters_;  ///< null if not bf16
    std::vector<int> times_set_;  ///< each parameter's times_set when its master was made
    std::unique_ptr<Optimizer> optimizer_;
};

/// Makes an Sgd or an AdamW, which updates bf16 parameters through masters.
template <typename Made, typename Options>
std::unique_ptr<Optimizer> make_optimizer(std::vector<Parameter*> parameters,
                                          const Options& options) {
    const auto make = [&](std::vector<Parameter*> updated) {
        return std::make_unique<Made>(std::move(updated), options);
    };
    if (std::ranges::none_of(parameters, [](const Parameter* parameter) {
            return parameter != nullptr && parameter->dtype() == DType::bf16;
        }))
        return make(std::move(parameters));
    return std::make_unique<MasterWeights>(std::move(parameters), make);
}

/// Parameters that are updated with the same options.
template <typename Options>
struct ParameterGroup {
    std::vector<Parameter*> parameters;
    Options options{};
};

/// Stochastic gradient descent, with momentum as in PyTorch:
///
///     g = gradient + weight_decay * p;  v = momentum * v + g;  p = p - learning_rate * v
///
/// (Sutskever, Martens, Dahl and Hinton 2013, ICML 28, section 2. Differs: the paper's
/// velocity includes the learning rate. The results are the same while the rate is
/// constant.) With momentum, the state is one tensor "momentum_buffer" per parameter.
class Sgd : public Optimizer {
  public:
    using Groups = std::vector<ParameterGroup<SgdOptions>>;

    explicit Sgd(std::vector<Parameter*> parameters, SgdOptions chosen = {});
    /// Accepts only the type Groups, so that {&a, &b} means two parameters, not a range.
    explicit Sgd(std::same_as<Groups> auto chosen) : Sgd(OfGroups{}, std::move(chosen)) {}

    /// Options may be changed between steps. Momentum may be changed only if a group had
    /// momentum at the start.
    Groups groups;

  private:
    Sgd(OfGroups, Groups chosen);
    void do_step(std::size_t index, std::int64_t step, SourceLine at) override;

    std::vector<std::size_t> group_of_;  ///< of each parameter
    std::vector<Tensor> velocities_;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019, 1711.05101,
/// algorithm 2), as in PyTorch. Step t counts from 1:
///
///     p = p - learning_rate * weight_decay * p
///     m = beta1 * m + (1 - beta1) * gradient;  v = beta2 * v + (1 - beta2) * gradient^2
///     p = p - learning_rate * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
///
/// (Differs: the paper's decay is not multiplied by the learning rate.) State: two
/// tensors per parameter, "exp_avg" m and "exp_avg_sq" v.
class AdamW : public Optimizer {
  public:
    using Groups = std::vector<ParameterGroup<AdamWOptions>>;

    explicit AdamW(std::vector<Parameter*> parameters, AdamWOptions chosen = {});
    explicit AdamW(std::same_as<Groups> auto chosen)
        : AdamW(OfGroups{}, std::move(chosen)) {}

    /// Options may be changed between steps.
    Groups groups;

  private:
    AdamW(OfGroups, Groups chosen);
    void do_step(std::size_t index, std::int64_t step, SourceLine at) override;

    std::vector<std::size_t> group_of_;  ///< of each parameter
    std::vector<Tensor> first_moments_;
    std::vector<Tensor> second_moments_;
};

/// Returns two groups: matrices and parts of matrices, with those options, and all other
/// parameters (biases, norms), without decay. GPT-2 and later GPTs are trained like this.
/// Empty groups are left out.
AdamW::Groups decay_matrices_only(const std::vector<Parameter*>& parameters,
                                  AdamWOptions options);

}  // namespace lockstep
