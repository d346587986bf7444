#pragma once

#include <functional>
#include <utility>

#include "src/nn/module.hpp"

namespace lockstep {

/// Modules one after another: the output of each is the input of the next. Parameters
/// keep the names that the modules were made with.
///
/// backward() runs from the last module to the first. It frees the tensors that a module
/// saved before it continues with the previous module.
class Sequential : public Module {
  public:
    /// Appends a module, which the Sequential then owns.
    void add(std::unique_ptr<Module> module);
    /// Makes a module, appends it and returns it:
    ///
    ///     Linear& hidden = layers.add<Linear>(init.child("hidden"), 10, 5);
    template <typename Layer, typename... Arguments>
    Layer& add(Arguments&&... arguments) {
        auto layer = std::make_unique<Layer>(std::forward<Arguments>(arguments)...);
        Layer& reference = *layer;
        add(std::move(layer));
        return reference;
    }

    std::size_t size() const { return modules_.size(); }
    Module& operator[](std::size_t index) { return *modules_[index]; }
    /// Replaces a module with the result of wrap(module), for example with a module that
    /// gathers its parameters or runs its forward again.
    void replace(
        std::size_t index,
        const std::function<std::unique_ptr<Module>(std::unique_ptr<Module>)>& wrap);

    std::vector<Parameter*> parameters() override;
    std::vector<Buffer> buffers() override;
    void each_part(FunctionRef<void(Module&)> visit) override;
    /// Passes the setting to the first module.
    void set_input_gradient(bool needed) override;

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    Tensor do_backward(const Tensor& dy, Saved& saved) override;
    Tensor do_infer(const Tensor& x, SourceLine at) override;

    std::vector<std::unique_ptr<Module>> modules_;
};

/// y = x + f(x), with the branch f (He et al. 2015, 1512.03385, section 3). Saves nothing
/// of its own.
///
/// The sum is written into the branch's result, forward and backward. So the branch must
/// return tensors that it does not keep. Otherwise throws UsageError.
class Residual : public Module {
  public:
    explicit Residual(std::unique_ptr<Module> branch);

    Module& branch() { return *branch_; }
    std::vector<Parameter*> parameters() override { return branch_->parameters(); }
    std::vector<Buffer> buffers() override { return branch_->buffers(); }
    void each_part(FunctionRef<void(Module&)> visit) override { visit(*branch_); }

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    Tensor do_backward(const Tensor& dy, Saved& saved) override;
    Tensor do_infer(const Tensor& x, SourceLine at) override;

    std::unique_ptr<Module> branch_;
};

}  // namespace lockstep
