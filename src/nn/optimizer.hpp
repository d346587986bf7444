#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/nn/parameter.hpp"

namespace lockstep {

/// Changes parameters by their gradients.
///
/// State is made, as zeros, with the optimizer, so that memory does not grow at the first
/// step; the ledger counts it as optimizer. The parameters must outlive the optimizer.
class Optimizer {
  public:
    virtual ~Optimizer() = default;
    Optimizer(const Optimizer&) = delete;
    Optimizer& operator=(const Optimizer&) = delete;

    /// One update of every parameter from its gradient, which stays as it is.
    virtual void step() = 0;

    const std::vector<Parameter*>& parameters() const { return parameters_; }
    /// Every state tensor, for records: "exp_avg/hidden.weight". The words are PyTorch's.
    const std::vector<std::pair<std::string, Tensor>>& state() const { return state_; }

  protected:
    /// Throws UsageError if a parameter is absent or given twice.
    explicit Optimizer(std::vector<Parameter*> parameters);

    /// Zeros in each parameter's shape, entered into state() under `name`.
    std::vector<Tensor> make_state(const char* name);

  private:
    std::vector<Parameter*> parameters_;
    std::vector<std::pair<std::string, Tensor>> state_;
};

/// Stochastic gradient descent, with momentum as PyTorch has it:
///
///     g = gradient + weight_decay * p;  v = momentum * v + g;  p = p - learning_rate * v
///
/// (Sutskever, Martens, Dahl and Hinton 2013, ICML 28, section 2. Differs: their velocity
/// includes the learning rate; the same while it is constant.) State, only with momentum:
/// one tensor "momentum_buffer" a parameter.
class Sgd : public Optimizer {
  public:
    explicit Sgd(std::vector<Parameter*> parameters, SgdOptions chosen = {});

    void step() override;

    /// May be changed between steps; momentum only if there was some at the start.
    SgdOptions options;

  private:
    std::vector<Tensor> velocities_;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019, 1711.05101, algorithm
/// 2), as PyTorch has it. Step t counts from 1:
///
///     p = p - learning_rate * weight_decay * p
///     m = beta1 * m + (1 - beta1) * gradient;  v = beta2 * v + (1 - beta2) * gradient^2
///     p = p - learning_rate * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
///
/// (Differs: the paper's decay is not multiplied by the learning rate.) State: two
/// tensors a parameter, "exp_avg" m and "exp_avg_sq" v.
class AdamW : public Optimizer {
  public:
    explicit AdamW(std::vector<Parameter*> parameters, AdamWOptions chosen = {});

    void step() override;
    /// Steps taken.
    std::int64_t steps() const { return steps_; }

    /// May be changed between steps.
    AdamWOptions options;

  private:
    std::vector<Tensor> first_moments_;
    std::vector<Tensor> second_moments_;
    std::int64_t steps_ = 0;
};

}  // namespace lockstep
