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

/// The values that a module's forward keeps for its backward, for one micro-batch (a
/// pipeline has several in flight). Each part of the module has its own child.
class Saved {
  public:
    /// `name` must be a literal. Throws UsageError if the name is taken: a second forward
    /// with the same Saved would mix two micro-batches.
    void keep(const char* name, Tensor tensor) { keep_value(name, std::move(tensor)); }
    /// Throws UsageError if forward kept nothing of that name.
    const Tensor& at(const char* name) const { return value<Tensor>(name); }
    /// These two keep values of any type, such as counts, a shape or a permutation.
    /// Backward must ask for the type that forward kept.
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
    /// Keeps and returns a state that forward depends on besides x and the parameters,
    /// such as the place in a stream of random numbers. If the same forward runs again,
    /// returns the state of the first run, whatever has happened since.
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
    /// Drops the value of that name, if there is one.
    void drop(const char* name);
    /// Drops everything, including the children's values; another forward can then run.
    void clear();
    /// Drops everything except states, also in children; the same forward can run again.
    void clear_to_repeat();
    /// Calls `visit` with each tensor that was kept, including the children's. `visit`
    /// may replace the tensor with another tensor of the same shape. Tensors inside other
    /// values are not visited.
    void each_tensor(FunctionRef<void(Tensor&)> visit);
    /// Returns child `index`, which is made at its first use and keeps its address.
    Saved& child(std::size_t index);

    /// A layer may add its own term, of shape (1), to the loss. It then adds the term's
    /// gradient in backward. The term is a mean over the micro-batch, times its weight in
    /// the step. The caller of forward sets this weight and collects the terms.
    double loss_weight() { return root().weight; }
    void set_loss_weight(double weight) { root().weight = weight; }
    void add_loss(Tensor loss) { root().losses.push_back(std::move(loss)); }
    std::vector<Tensor> take_losses() { return std::exchange(root().losses, {}); }

    /// Returns the source line of the last forward or backward to which this Saved (for a
    /// child: the outermost Saved) was passed.
    SourceLine line() { return root().at; }
    /// Does nothing for a child of another Saved.
    void set_line(SourceLine at) {
        if (root_ == nullptr || own_root_) root().at = at;
    }

  private:
    /// The data that a Saved shares with all its children.
    struct Root {
        double weight = 1;
        std::vector<Tensor> losses;
        SourceLine at;
    };
    struct Kept {
        const char* name;
        std::any value;
        bool is_state = false;
        bool is_of_first = false;  ///< a state of the first run, to be returned again
    };
    Root& root();
    Kept* find_kept(const char* name);
    const std::any* find(const char* name) const;
    void require_free(const char* name) const;
    [[noreturn]] void refuse(const char* name) const;

    std::vector<Kept> values_;
    std::vector<std::unique_ptr<Saved>> children_;
    std::unique_ptr<Root> own_root_;  ///< none in a child
    Root* root_ = nullptr;
};

/// A tensor of a model that is not a parameter, such as a batch norm's running
/// statistics. Forward updates it, and it has no gradient.
struct Buffer {
    std::string name;  ///< as in PyTorch's state_dict
    Tensor tensor;
    bool alike = true;  ///< replicas of the model must hold the same values
};

/// A differentiable function with parameters, on one device.
///
/// Backward has two halves, because zero-bubble pipelines run them at different times:
///     backward_input   dx from dy; keeps in `saved` what the other half needs
///     backward_weight  adds to the parameters' gradients, and clears `saved`
/// backward() runs both halves, and frees `saved` as it runs. Gradients add up until
/// zero_gradients(): accumulation is the default. dx is empty (a default Tensor) if the
/// module gives no gradient of its input.
///
/// A layer overrides the private do_… functions. It keeps in `saved` exactly what
/// backward needs. In do_backward_input it drops what do_backward_weight does not need.
/// It calls Parameter::accumulated() after each contribution that it adds.
class Module {
  public:
    Module() = default;
    virtual ~Module() = default;
    Module(const Module&) = delete;
    Module& operator=(const Module&) = delete;

    /// These functions throw UsageError, at the line of the outermost call, if a needed
    /// value or gradient of a parameter is absent.
    Tensor forward(const Tensor& x, Saved& saved, SourceLine at = SourceLine::here());
    Tensor backward_input(const Tensor& dy, Saved& saved,
                          SourceLine at = SourceLine::here());
    void backward_weight(Saved& saved, SourceLine at = SourceLine::here());
    Tensor backward(const Tensor& dy, Saved& saved, SourceLine at = SourceLine::here());

    /// Runs only forward, and keeps nothing for backward.
    Tensor infer(const Tensor& x, SourceLine at = SourceLine::here());

    /// Returns each parameter once, in the order of PyTorch's state_dict.
    virtual std::vector<Parameter*> parameters() { return own_parameters(); }

    virtual std::vector<Buffer> buffers() { return {}; }

    /// Calls `visit` with each direct part of this module, in order.
    virtual void each_part(FunctionRef<void(Module&)> /*visit*/) {}

    /// If `needed` is false, as for a first layer, backward returns no gradient of the
    /// input, and reads no parameter. Call this before forward, which may then save less.
    virtual void set_input_gradient(bool needed) { input_gradient_ = needed; }

  protected:
    bool input_gradient() const { return input_gradient_; }

  private:
    virtual Tensor do_forward(const Tensor& x, Saved& saved) = 0;
    virtual Tensor do_backward_input(const Tensor& dy, Saved& saved) = 0;
    /// A module without parameters does nothing here.
    virtual void do_backward_weight(Saved& /*saved*/) {}
    /// Runs both halves. A module that has parts runs both halves of one part before the
    /// next part, to free memory early.
    virtual Tensor do_backward(const Tensor& dy, Saved& saved);
    /// Runs forward and drops what it kept; modules with parts do so after each part.
    virtual Tensor do_infer(const Tensor& x, SourceLine at);
    /// Parameters that this module itself reads, without those of its parts.
    virtual std::vector<Parameter*> own_parameters() { return {}; }
    /// Returns whether the gradient of the input depends on the parameter's value. If not
    /// (such as for a bias), a strategy need not bring the value back for backward.
    virtual bool reads_in_backward(const Parameter& /*own*/) const { return true; }

    template <typename Work>
    auto using_parameters(Use use, SourceLine at, Work&& work);

    bool input_gradient_ = true;
};

/// Begins a step of `passes` backward passes for all parameters; see
/// Parameter::zero_gradient.
void zero_gradients(Module& module, int passes = 1);

}  // namespace lockstep
