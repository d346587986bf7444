#pragma once

#include "gpu/launcher/control.hpp"

namespace lockstep::gpu {

/// Tells the other processes that this process is working or waiting, and finds out
/// whether the run has been stopped. Does nothing if the process is alone.
class Watch {
  public:
    explicit Watch(Control* control) : control_(control) {}

    void progress() const noexcept {
        if (control_ != nullptr) control_->progress();
    }
    bool alone() const { return control_ == nullptr; }
    /// Throws RunStopped once the run has been stopped.
    void check() const {
        if (control_ != nullptr) control_->check();
    }
    bool stopped() const noexcept { return control_ != nullptr && control_->stopped(); }

  private:
    Control* control_;
};

}  // namespace lockstep::gpu
