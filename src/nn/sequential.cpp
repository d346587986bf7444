#include "src/nn/sequential.hpp"

#include <string>

#include "src/core/require.hpp"

namespace lockstep {

void Sequential::add(std::unique_ptr<Module> module) {
    require(module != nullptr, "Sequential was given a module that is null");
    if (modules_.empty()) module->set_input_gradient(input_gradient());
    modules_.push_back(std::move(module));
}

void Sequential::replace(
    std::size_t index,
    const std::function<std::unique_ptr<Module>(std::unique_ptr<Module>)>& wrap) {
    require(index < modules_.size(),
            "cannot replace module {} of a Sequential of {}; modules count from 0", index,
            modules_.size());
    std::unique_ptr<Module> made = wrap(std::move(modules_[index]));
    require(made != nullptr, "module {} of a Sequential was replaced by one that is null",
            index);
    modules_[index] = std::move(made);
    if (index == 0) modules_.front()->set_input_gradient(input_gradient());
}

namespace {

/// Joins the lists of all modules.
template <typename Item>
std::vector<Item> all_of(const std::vector<std::unique_ptr<Module>>& modules,
                         std::vector<Item> (Module::*items)()) {
    std::vector<Item> all;
    for (const auto& module : modules) {
        const std::vector<Item> part = (*module.*items)();
        all.insert(all.end(), part.begin(), part.end());
    }
    return all;
}

}  // namespace

std::vector<Parameter*> Sequential::parameters() {
    return all_of(modules_, &Module::parameters);
}

std::vector<Buffer> Sequential::buffers() {
    return all_of(modules_, &Module::buffers);
}

void Sequential::each_part(FunctionRef<void(Module&)> visit) {
    for (const auto& module : modules_)
        visit(*module);
}

void Sequential::set_input_gradient(bool needed) {
    Module::set_input_gradient(needed);
    if (!modules_.empty()) modules_.front()->set_input_gradient(needed);
}

Tensor Sequential::do_forward(const Tensor& x, Saved& saved) {
    Tensor y = x;
    for (std::size_t i = 0; i < modules_.size(); ++i)
        y = modules_[i]->forward(y, saved.child(i));
    return y;
}

Tensor Sequential::do_infer(const Tensor& x, SourceLine at) {
    Tensor y = x;
    for (const auto& module : modules_)
        y = module->infer(y, at);
    return y;
}

Tensor Sequential::do_backward(const Tensor& dy, Saved& saved) {
    Tensor gradient = dy;
    for (std::size_t i = modules_.size(); i-- > 0;)
        gradient = modules_[i]->backward(gradient, saved.child(i));
    return gradient;
}

Tensor Sequential::do_backward_input(const Tensor& dy, Saved& saved) {
    Tensor gradient = dy;
    for (std::size_t i = modules_.size(); i-- > 0;)
        gradient = modules_[i]->backward_input(gradient, saved.child(i));
    return gradient;
}

void Sequential::do_backward_weight(Saved& saved) {
    for (std::size_t i = modules_.size(); i-- > 0;)
        modules_[i]->backward_weight(saved.child(i));
}

namespace {

/// Adds `straight` to `sum`, to which nothing else may refer, and returns `sum`.
Tensor added(Tensor sum, const Tensor& straight) {
    require(sum && sum.shape() == straight.shape(),
            "Residual: the branch gives {} for {}; both must have the same shape, "
            "because they are added",
            sum ? sum.shape().text() : std::string("no gradient"), straight.shape());
    require(
        sum.storage()->references() == 1,
        "Residual: the branch returns a tensor that something else still uses, and the "
        "sum would overwrite it; end the branch with a layer that returns a new tensor");
    sum.device()->add(sum, straight);
    return sum;
}

}  // namespace

Residual::Residual(std::unique_ptr<Module> branch) : branch_(std::move(branch)) {
    require(branch_ != nullptr, "Residual was given a branch that is null");
}

Tensor Residual::do_forward(const Tensor& x, Saved& saved) {
    return added(branch_->forward(x, saved.child(0)), x);
}

Tensor Residual::do_infer(const Tensor& x, SourceLine at) {
    return added(branch_->infer(x, at), x);
}

// dx = dy + f'(dy)
Tensor Residual::do_backward_input(const Tensor& dy, Saved& saved) {
    return added(branch_->backward_input(dy, saved.child(0)), dy);
}

void Residual::do_backward_weight(Saved& saved) {
    branch_->backward_weight(saved.child(0));
}

Tensor Residual::do_backward(const Tensor& dy, Saved& saved) {
    return added(branch_->backward(dy, saved.child(0)), dy);
}

}  // namespace lockstep
