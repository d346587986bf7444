#include "lessons/runner/processes.hpp"

#include <chrono>
#include <termios.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/cluster.hpp"
#include "gpu/launcher/control.hpp"
#include "gpu/launcher/supervise.hpp"
#include "lessons/runner/backend.hpp"
#include "lessons/runner/command.hpp"
#include "lessons/runner/explain_stall.hpp"
#include "lessons/runner/page.hpp"
#include "lessons/runner/terminal.hpp"
#include "sim/cluster.hpp"
#include "src/core/require.hpp"

namespace lockstep::lessons {

namespace {

constexpr const char* kNoMoreSteps = "end";

/// On rank 0: tells the others of each step before it runs it.
void lead(gpu::Control& control, std::vector<Step>& steps) {
    for (std::size_t index = 0; index < steps.size(); ++index)
        steps[index].run = [&control, index, run = steps[index].run](Page& page) {
            control.broadcast(std::to_string(index));
            run(page);
        };
}

/// On the others: runs what rank 0 runs.
void follow(gpu::Control& control, std::vector<Step>& steps, Record& record) {
    SilentPage page(record);
    for (;;) {
        const std::string next = control.broadcast({});
        if (next == kNoMoreSteps) return;
        steps.at(std::stoul(next)).run(page);
    }
}

gpu::ProcessOptions process_options(const LessonOptions& options, gpu::Control* control) {
    gpu::ProcessOptions process;
    process.control = control;
    process.tf32 = options.run.tf32;
    process.share_gpu = options.run.shares_gpu;
    process.make_host = sim::make_host;
    process.examine = check_calls;
    if (control != nullptr) process.on_failure = [control] { tell_failure(*control); };
    return process;
}

int run_placed(const LessonEntry& lesson, LessonOptions options, gpu::Control& control) {
    const auto process = gpu::Process::open(process_options(options, &control));
    options.process = process.get();
    const bool leads = control.rank() == 0;
    if (!leads) options.out.reset();
    const int status =
        run_steps(lesson, options, [&](std::vector<Step>& steps, Record& record) {
            if (leads)
                lead(control, steps);
            else
                follow(control, steps, record);
            return leads;
        });
    if (leads) control.broadcast(kNoMoreSteps);
    return status;
}

}  // namespace

gpu::Failure tell_failure(gpu::Control& control) {
    CommandEnding mine = ending_of_exception();
    constexpr std::string_view kProgram = "lockstep: ";
    if (control.rank() != 0 && mine.text.starts_with(kProgram) &&
        !mine.text.starts_with("lockstep: rank "))
        mine.text.insert(kProgram.size(), fmt::format("rank {}: ", control.rank()));
    const gpu::Failure failure{control.rank(), mine.status, mine.text};
    control.fail(failure);
    return failure;
}

gpu::Failure first_failure(gpu::Control& control) {
    const gpu::Failure mine = tell_failure(control);
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

namespace {

/// In a handler: tells the others; returns the status of the first failure of all, said
/// by rank 0.
int give_up(gpu::Control& control) {
    const gpu::Failure first = first_failure(control);
    if (control.claim_text()) write_all(STDERR_FILENO, first.text, "standard error");
    return first.status;
}

int run_alone(const LessonEntry& lesson, LessonOptions options) {
    const auto process = gpu::Process::open(process_options(options, nullptr));
    options.process = process.get();
    return run_steps(lesson, options, [](auto&, auto&) { return true; });
}

/// Gives the terminal back as it was: a rank that is killed at a prompt leaves it without
/// echo.
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

/// Refuses wrong options once, before a process is started for each rank.
void check_options(const LessonEntry& lesson, const LessonOptions& options) {
    Record record;
    require_ranks(lesson, options);
    cluster_options(options, *options.ranks, false);
    lesson.make(options, record);
}

}  // namespace

int run_on_processes(const LessonEntry& lesson, const LessonOptions& options,
                     const std::optional<gpu::Placement>& placement,
                     const std::vector<std::string>& arguments) {
    if (!placement) {
        if (*options.ranks == 1) return run_alone(lesson, options);
        check_options(lesson, options);
        const TerminalKept kept;
        return gpu::supervise(*options.ranks, arguments);
    }
    const auto control = gpu::Control::join(*placement, {options.run.timeout_seconds});
    if (control->rank() == 0)
        control->set_explain([](const std::vector<std::string>& logs, int stalled) {
            return stall_text(logs, stalled, window_columns(STDERR_FILENO));
        });
    try {
        return run_placed(lesson, options, *control);
    } catch (...) {
        return give_up(*control);
    }
}

}  // namespace lockstep::lessons
