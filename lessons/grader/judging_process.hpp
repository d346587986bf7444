#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <sys/types.h>

#include "lessons/grader/judge.hpp"
#include "lessons/grader/remote/frames.hpp"
#include "src/os/descriptor.hpp"

namespace lockstep::lessons {

/// Judges criteria in a process of its own, since the simulator does there what students'
/// programs ask for: what they bring about, were it the end of that process, costs the
/// criterion it was at, and no other. The process is kept from one criterion to the next,
/// with what it remembers.
class JudgingProcess {
  public:
    using Clock = Frames::Clock;
    /// Judges the criterion with that index.
    using Work = std::function<Judgement(std::size_t)>;

    struct Limits {
        Clock::time_point deadline;                  ///< of all
        std::chrono::milliseconds longest{100'000};  ///< of one criterion
        /// The process' address space may grow by this much.
        std::int64_t memory_bytes = std::int64_t{512} << 20;
    };

    /// `work` is called in the process, which begins as a copy of this one.
    JudgingProcess(Work work, const Limits& limits)
        : work_(std::move(work)), limits_(limits) {}
    /// Ends the process.
    ~JudgingProcess();
    JudgingProcess(const JudgingProcess&) = delete;
    JudgingProcess& operator=(const JudgingProcess&) = delete;

    /// Throws MissingError if the machine lacks something, so that the work threw that or
    /// std::system_error, and if the grading itself errs (GradingError). All else that
    /// goes wrong there is said in a judgement that has failed, or is of nothing if the
    /// time for all was over.
    Judgement judge(std::size_t index);

  private:
    void start();
    [[noreturn]] void serve(int descriptor) const noexcept;
    Judgement judgement_without_answer();
    /// Ends it; returns its status, as wait() has it.
    int end();

    Work work_;
    Limits limits_;
    pid_t process_ = -1;
    os::Descriptor socket_;
    Frames line_{-1};
};

}  // namespace lockstep::lessons
