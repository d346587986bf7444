#include "src/nn/residual.hpp"

#include <string>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

/// sum += straight, where `sum` is the branch's own.
Tensor added(Tensor sum, const Tensor& straight) {
    require(sum && sum.shape() == straight.shape(),
            "Residual: the branch gives {} for {}; it must keep the shape, since the two "
            "are added",
            sum ? sum.shape().text() : std::string("no gradient"), straight.shape());
    require(sum.storage()->references() == 1,
            "Residual: the branch gives a tensor that it keeps or was given, and adding "
            "to it would change that one too; end it with a layer that does not");
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
