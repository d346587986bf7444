#include "program/processes.hpp"

#include <chrono>
#include <string_view>
#include <termios.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/launcher/supervise.hpp"
#include "program/explain_stall.hpp"
#include "sim/cluster.hpp"
#include "src/os/descriptor.hpp"
#include "src/os/terminal.hpp"

namespace lockstep::programs {

namespace {

/// Inserts the rank after the program's name in "ring: …", unless a rank follows. Does
/// nothing for rank 0.
void name_rank(std::string& text, int rank) {
    const std::size_t colon = text.find(": ");
    if (rank == 0 || colon == std::string::npos) return;
    const std::string_view said = std::string_view(text).substr(colon + 2);
    if (said.starts_with("rank ")) return;
    text.insert(colon + 2, fmt::format("rank {}: ", rank));
}

/// Restores the terminal's settings: a rank killed at a prompt would leave echo off.
class TerminalKept {
  public:
    TerminalKept() { known_ = ::tcgetattr(STDIN_FILENO, &before_) == 0; }
    ~TerminalKept() {
        if (known_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    }
    TerminalKept(const TerminalKept&) = delete;
    TerminalKept& operator=(const TerminalKept&) = delete;

  private:
    termios before_{};
    bool known_ = false;
};

}  // namespace

gpu::Failure tell_failure(gpu::Control& control, const Explain& explain) {
    const Ending mine = explain();
    gpu::Failure failure{control.rank(), mine.status, mine.text};
    if (!mine.is_diagnosis) name_rank(failure.text, control.rank());
    control.fail(failure);
    return failure;
}

gpu::Failure first_failure(gpu::Control& control, const Explain& explain) {
    gpu::Failure mine = tell_failure(control, explain);
    try {
        // Rank 0 decides whose failure came first.
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
        while (std::chrono::steady_clock::now() < until) {
            control.check();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    } catch (const gpu::RunStopped& stopped) {
        return stopped.failure();
    }
    return mine;
}

int run_copies(int ranks, const std::vector<std::string>& words) {
    const TerminalKept kept;
    return gpu::supervise(ranks, words);
}

Processes::Processes(const Options& options,
                     const std::optional<gpu::Placement>& placement, Explain explain)
    : explain_(std::move(explain)) {
    if (!placement) return;
    control_ = gpu::Control::join(*placement, {options.run.timeout_seconds});
    if (leads())
        control_->set_explain([](const std::vector<std::string>& logs, int stalled) {
            return stall_text(logs, stalled, os::window_columns(STDERR_FILENO));
        });
}

gpu::Process& Processes::open(const Options& options) {
    gpu::ProcessOptions process;
    process.control = control();
    process.tf32 = options.run.tf32;
    process.sync = options.run.sync;
    process.share_gpu = options.run.shares_gpu;
    process.make_host = sim::make_host;
    process.examine = check_calls;
    if (control_ != nullptr)
        process.on_failure = [this] { tell_failure(*control_, explain_); };
    process_ = gpu::Process::open(process);
    return *process_;
}

int Processes::give_up() {
    process_.reset();
    if (control_ == nullptr) throw;
    const gpu::Failure first = first_failure(*control_, explain_);
    if (control_->claim_text())
        os::write_all(STDERR_FILENO, first.text, "standard error");
    return first.status;
}

}  // namespace lockstep::programs
