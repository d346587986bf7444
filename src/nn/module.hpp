#pragma once

#include <any>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/core/function_ref.hpp"
#include "src/nn/parameter.hpp"

namespace lockstep {

/// A module's forward keeps this for its backward, for one micro-batch: pipelines hold
/// several in flight. A module that is made of others gives each of them a child.
class Saved {
  public:
    /// `name` is a literal. Throws UsageError if the name is taken: a second forward with
    /// the same Saved would mix two micro-batches.
    void keep(const char* name, Tensor tensor) { keep_value(name, std::move(tensor)); }
    /// Throws UsageError if forward kept nothing of that name.
    const Tensor& at(const char* name) const { return value<Tensor>(name); }
    /// These two keep values of any type, which backward asks for by the type that
    /// forward kept: counts, a shape, a permutation.
    template <typename Value>
    void keep_value(const char* name, Value value) {
        require_free(name);
        values_.push_back({name, std::move(value)});
    }
    template <typename Value>
    const Value& value(const char* name) const {
        const Value* kept = std::any_cast<Value>(find(name));
        if (kept == nullptr) refuse(name);
        return *kept;
    }
    /// Keeps what the module goes by beside x and its parameters, such as the place in a
    /// stream of random numbers, and gives it. When the same forward runs again, it gives
    /// what it was the first time, whatever has come between.
    template <typename Value>
    Value keep_state(const char* name, Value now) {
        if (Kept* kept = find_kept(name); kept != nullptr && kept->is_of_first) {
            kept->is_of_first = false;
            return value<Value>(name);
        }
        keep_value(name, now);
        values_.back().is_state = true;
        return now;
    }
    /// Drops one of them, if there is one.
    void drop(const char* name);
    /// Drops everything, the children's too; ready for another forward.
    void clear();
    /// Drops everything but states, the children's too; ready for the same forward again.
    void clear_to_repeat();
    /// Calls `visit` with each tensor that was kept, the children's too, which may put
    /// another one of its shape in its place. It does not find tensors that are inside of
    /// other values.
    void each_tensor(FunctionRef<void(Tensor&)> visit);
    /// Part `index`; made at its first use. Its address stays valid.
    Saved& child(std::size_t index);

    /// A layer may add a term of its own to the loss, (1), and add its gradient in
    /// backward: as a mean over the micro-batch, times the weight that the micro-batch
    /// has in the step. Whoever calls forward sets the weight, and takes the terms.
    double loss_weight() { return root().weight; }
    void set_loss_weight(double weight) { root().weight = weight; }
    void add_loss(Tensor loss) { root().losses.push_back(std::move(loss)); }
    std::vector<Tensor> take_losses() { return std::exchange(root().losses, {}); }

    /// Returns the line of the caller who began with this Saved, or one that it is part
    /// of.
    SourceLine line() { return root().at; }
    /// Does nothing for a part of another.
    void set_line(SourceLine at) {
        if (root_ == nullptr || own_root_) root().at = at;
    }

  private:
    /// All parts of one Saved have this in common.
    struct Root {
        double weight = 1;
        std::vector<Tensor> losses;
        SourceLine at;
    };
    struct Kept {
        const char* name;
        std::any value;
        bool is_state = false;
        bool is_of_first = false;  ///< a state, for a forward that runs again
    };
    Root& root();
    Kept* find_kept(const char* name);
    const std::any* find(const char* name) const;
    void require_free(const char* name) const;
    [[noreturn]] void refuse(const char* name) const;

    std::vector<Kept> values_;
    std::vector<std::unique_ptr<Saved>> children_;
    std::unique_ptr<Root> own_root_;  ///< none in a part of another
    Root* root_ = nullptr;
};

/// A tensor that belongs to a model and is no parameter, as a batch norm's running
/// statistics: forward moves it, and it has no gradient.
struct Buffer {
    std::string name;  ///< as in PyTorch's state_dict
    Tensor tensor;
};

/// A differentiable function with parameters, on one device.
///
/// Backward comes in two halves, as zero-bubble pipelines need them apart:
///   backward_input   dx from dy; keeps in `saved` what the other half needs
///   backward_weight  adds to the parameters' gradients, and clears `saved`
/// backward() does both and frees `saved` as it goes. Gradients are added up until
/// zero_gradients(): accumulation is the default. dx is none (a default Tensor) where the
/// module gives no gradient of its input.
///
/// A layer overrides the private do_… functions. It keeps in `saved` exactly what
/// backward needs, drops in do_backward_input what do_backward_weight does not need, and
/// calls Parameter::accumulated() after each contribution it added.
class Module {
  public:
    Module() = default;
    virtual ~Module() = default;
    Module(const Module&) = delete;
    Module& operator=(const Module&) = delete;

    /// Each throws UsageError, at the line of the outermost call, if it needs a
    /// parameter's value or gradient that is absent.
    Tensor forward(const Tensor& x, Saved& saved, SourceLine at = SourceLine::here());
    Tensor backward_input(const Tensor& dy, Saved& saved,
                          SourceLine at = SourceLine::here());
    void backward_weight(Saved& saved, SourceLine at = SourceLine::here());
    Tensor backward(const Tensor& dy, Saved& saved, SourceLine at = SourceLine::here());

    /// Forward alone: keeps nothing for a backward.
    Tensor infer(const Tensor& x, SourceLine at = SourceLine::here());

    /// In a fixed order, that of PyTorch's state_dict; each once.
    virtual std::vector<Parameter*> parameters() { return own_parameters(); }

    virtual std::vector<Buffer> buffers() { return {}; }

    /// Calls `visit` with each module that this one is made of, in order; not with those
    /// that these are made of.
    virtual void each_part(FunctionRef<void(Module&)> /*visit*/) {}

    /// A first layer need not compute the gradient of its input: backward then gives
    /// none, and reads no parameter. To be chosen before forward, which then may save
    /// less.
    virtual void set_input_gradient(bool needed) { input_gradient_ = needed; }

  protected:
    bool input_gradient() const { return input_gradient_; }

  private:
    virtual Tensor do_forward(const Tensor& x, Saved& saved) = 0;
    virtual Tensor do_backward_input(const Tensor& dy, Saved& saved) = 0;
    /// Nothing if the module has no parameters.
    virtual void do_backward_weight(Saved& /*saved*/) {}
    /// Both halves; a module of parts goes part by part, so that memory is freed early.
    virtual Tensor do_backward(const Tensor& dy, Saved& saved);
    /// Forward, and what it kept goes at once; a module of parts goes part by part.
    virtual Tensor do_infer(const Tensor& x, SourceLine at);
    /// Parameters that this module itself reads, without its parts'.
    virtual std::vector<Parameter*> own_parameters() { return {}; }
    /// Returns whether the gradient of the input needs the value of one of them, as it
    /// needs no bias: a strategy need not bring back what is not read.
    virtual bool reads_in_backward(const Parameter& /*own*/) const { return true; }

    template <typename Work>
    auto using_parameters(Use use, SourceLine at, Work&& work);

    bool input_gradient_ = true;
};

/// Begins a step of so many backward passes for all parameters; see
/// Parameter::zero_gradient.
void zero_gradients(Module& module, int passes = 1);

}  // namespace lockstep
