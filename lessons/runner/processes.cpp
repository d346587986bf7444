#include "lessons/runner/processes.hpp"

namespace lockstep::lessons {

namespace {

constexpr const char* kNoMoreSteps = "end";

/// On rank 0: announces each step to the other ranks before running it.
void lead(gpu::Control& control, std::vector<Step>& steps) {
    for (std::size_t index = 0; index < steps.size(); ++index)
        steps[index].run = [&control, index, run = steps[index].run] {
            control.broadcast(std::to_string(index));
            return run();
        };
}

/// On the other ranks: runs the steps that rank 0 announces.
void follow(gpu::Control& control, std::vector<Step>& steps) {
    for (;;) {
        const std::string next = control.broadcast({});
        if (next == kNoMoreSteps) return;
        steps.at(std::stoul(next)).run();
    }
}

int run_placed(const LessonEntry& lesson, LessonOptions options, Processes& processes) {
    options.process = &processes.open(options);
    gpu::Control* const control = processes.control();
    const bool leads = processes.leads();
    if (!leads) options.out.reset();
    const int status = run_steps(lesson, options, [&](std::vector<Step>& steps) {
        if (!leads)
            follow(*control, steps);
        else if (control != nullptr)
            lead(*control, steps);
        return leads;
    });
    if (leads && control != nullptr) control->broadcast(kNoMoreSteps);
    return status;
}

/// Throws UsageError for wrong options here, so that not every rank's process does.
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
    if (!placement && *options.ranks > 1) {
        check_options(lesson, options);
        return run_copies(*options.ranks, arguments);
    }
    Processes processes(options, placement);
    try {
        return run_placed(lesson, options, processes);
    } catch (...) {
        return processes.give_up();
    }
}

}  // namespace lockstep::lessons
