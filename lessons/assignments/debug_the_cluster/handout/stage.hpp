#pragma once

#include <deque>
#include <utility>

#include "src/device/device.hpp"

/// One stage of the pipeline: a layer y = tanh(x W), and what its forwards saved for the
/// backwards that are still to come.
class Stage {
  public:
    Stage(lockstep::Device& device, const lockstep::Tensor& weight,
          const lockstep::Tensor& gradient)
        : device_(device), weight_(weight), gradient_(gradient) {
        device_.fill(gradient_, 0);
    }

    const lockstep::Tensor& forward(const lockstep::Tensor& x) {
        const lockstep::PhaseScope phase(device_, lockstep::Phase::forward, forwards_++);
        const lockstep::Tensor y = device_.tanh(device_.matmul(x, weight_));
        return in_flight_.emplace_back(x, y).second;
    }

    /// Runs the backward of the earliest micro-batch in flight.
    lockstep::Tensor backward(const lockstep::Tensor& dy) {
        const lockstep::PhaseScope phase(device_, lockstep::Phase::backward,
                                         backwards_++);
        const auto [x, y] = in_flight_.front();
        in_flight_.pop_front();
        const lockstep::Tensor d_product = device_.tanh_backward(y, dy);
        device_.matmul_into(gradient_, x, d_product,
                            {.transpose_a = true, .accumulate = true});
        return device_.matmul(d_product, weight_, {.transpose_b = true});
    }

  private:
    lockstep::Device& device_;
    lockstep::Tensor weight_, gradient_;
    std::deque<std::pair<lockstep::Tensor, lockstep::Tensor>> in_flight_;
    int forwards_ = 0, backwards_ = 0;
};
