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

/// In a handler: says how the exception ends its program.
using Explain = std::function<Ending()>;

/// In a handler: tells the other processes of the exception.
gpu::Failure tell_failure(
    gpu::Control& control, const Explain& explain = [] { return ending_of_exception(); });

/// In a handler: the same, and gives the first failure of all, this process's or
/// another's. Rank 0 says it: see Control::claim_text.
gpu::Failure first_failure(
    gpu::Control& control, const Explain& explain = [] { return ending_of_exception(); });

/// Runs a copy of this program for each rank, with the same words, and returns the status
/// of the first that failed. The terminal is afterwards as it was.
int run_copies(int ranks, const std::vector<std::string>& words);

/// This process of a run with --backend nccl, among the others that were started with it;
/// alone if there is no placement. The first failure of any process ends all, with its
/// status; rank 0 says what it was.
class Processes {
  public:
    /// All processes meet.
    Processes(
        const Options& options, const std::optional<gpu::Placement>& placement,
        Explain explain = [] { return ending_of_exception(); });

    /// Takes this process's GPU, and makes NCCL's communicators to the others.
    gpu::Process& open(const Options& options);

    /// Null if this process is alone.
    gpu::Control* control() const { return control_.get(); }
    /// Returns whether this process is the one that speaks and records.
    bool leads() const { return control_ == nullptr || control_->rank() == 0; }

    /// In a handler: tells the others and returns the status of the first failure of all,
    /// which rank 0 says. A process that is alone throws on.
    int give_up();

  private:
    Explain explain_;
    std::unique_ptr<gpu::Control> control_;
    std::unique_ptr<gpu::Process> process_;
};

}  // namespace lockstep::programs
