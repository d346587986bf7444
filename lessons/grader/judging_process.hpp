#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <sys/types.h>

#include "lessons/grader/judge.hpp"
#include "lessons/grader/remote/frames.hpp"
#include "src/os/descriptor.hpp"

namespace lockstep::lessons {

/// Judges criteria in a separate process, in which the simulator runs what students'
/// programs ask for. If a program brings down that process, only the current criterion
/// fails. The process and its memory are kept from one criterion to the next.
class JudgingProcess {
  public:
    using Clock = Frames::Clock;
    /// Judges the criterion with that index.
    using Work = std::function<Judgement(std::size_t)>;

    struct Limits {
        /// For all criteria. Only a machine that is far too slow or too busy reaches it.
        Clock::time_point deadline;
        double one_seconds;  ///< processor time of the process, for one criterion
        double all_seconds;  ///< the same, for all criteria
        /// The process's address space may grow by this much.
        std::int64_t memory_bytes = std::int64_t{512} << 20;
    };

    /// `work` is called in the process, which begins as a copy of this one.
    JudgingProcess(Work work, const Limits& limits)
        : work_(std::move(work)), limits_(limits) {}
    /// Ends the process.
    ~JudgingProcess();
    JudgingProcess(const JudgingProcess&) = delete;
    JudgingProcess& operator=(const JudgingProcess&) = delete;

    /// Throws MissingError if the machine lacks something (the work threw MissingError or
    /// std::system_error), if the deadline is over, or if the grading itself has an error
    /// (GradingError). Any other problem becomes a failed judgement.
    Judgement judge(std::size_t index);

  private:
    void start();
    [[noreturn]] void serve(int descriptor) const noexcept;
    Judgement judgement_without_answer(double used);
    /// Ends the process; returns its status as waitpid() stores it.
    int end();

    Work work_;
    Limits limits_;
    double used_seconds_ = 0;  ///< processor time for all criteria
    pid_t process_ = -1;
    os::Descriptor socket_;
    Frames line_{-1};
};

}  // namespace lockstep::lessons
