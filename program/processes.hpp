#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/cluster.hpp"
#include "gpu/launcher/control.hpp"
#include "gpu/launcher/placement.hpp"
#include "program/ending.hpp"
#include "program/options.hpp"

namespace lockstep::programs {

/// In a catch block: returns how the exception ends the program.
using Explain = std::function<Ending()>;

/// In a catch block: tells the other processes about the exception.
gpu::Failure tell_failure(
    gpu::Control& control, const Explain& explain = [] { return ending_of_exception(); });

/// In a catch block: calls tell_failure, and returns the first failure of any process.
/// Rank 0 prints that failure (see Control::claim_text).
gpu::Failure first_failure(
    gpu::Control& control, const Explain& explain = [] { return ending_of_exception(); });

/// Runs a copy of this program for each rank, with `words` as arguments, and returns the
/// status of the first copy that failed. Afterwards the terminal has its old settings.
int run_copies(int ranks, const std::vector<std::string>& words);

/// This process and its connection to the other processes of a run with --backend nccl.
/// Without a placement there are no other processes. The first failure of any process
/// ends all processes with the same status; rank 0 prints the failure.
class Processes {
  public:
    /// Waits until all processes have met.
    Processes(
        const Options& options, const std::optional<gpu::Placement>& placement,
        Explain explain = [] { return ending_of_exception(); });

    /// Selects this process's GPU, and makes NCCL's communicators to the other processes.
    gpu::Process& open(const Options& options);

    /// Null if this is the only process.
    gpu::Control* control() const { return control_.get(); }
    /// Returns whether this process prints and records for all.
    bool leads() const { return control_ == nullptr || control_->rank() == 0; }

    /// In a catch block: tells the other processes, and returns the status of the first
    /// failure. Rank 0 prints that failure. If this is the only process, rethrows.
    int give_up();

  private:
    Explain explain_;
    std::unique_ptr<gpu::Control> control_;
    std::unique_ptr<gpu::Process> process_;
};

}  // namespace lockstep::programs
