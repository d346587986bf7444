#pragma once

#include "src/nn/module.hpp"

namespace lockstep {

/// A module that runs another module and does something around it. Parameters keep their
/// names, and the setting for the input's gradient is passed on. The other module saves
/// into the first child of this module's Saved.
class Wrapper : public Module {
  public:
    std::vector<Parameter*> parameters() override { return module_->parameters(); }
    std::vector<Buffer> buffers() override { return module_->buffers(); }
    void each_part(FunctionRef<void(Module&)> visit) override { visit(*module_); }
    void set_input_gradient(bool needed) override;

  protected:
    /// Throws a UsageError that begins with `who` if the module is null.
    Wrapper(const char* who, std::unique_ptr<Module> module);

    Module& module() { return *module_; }

    // By default these only run the other module.
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    void do_backward_weight(Saved& saved) override;
    Tensor do_backward(const Tensor& dy, Saved& saved) override;
    Tensor do_infer(const Tensor& x, SourceLine at) override;

  private:
    std::unique_ptr<Module> module_;
};

}  // namespace lockstep
