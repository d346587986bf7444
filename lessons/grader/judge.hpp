#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lessons/grader/assignment.hpp"
#include "lessons/grader/solution.hpp"

namespace lockstep::lessons {

/// The grader's data, secret and answers; students do not have them.
struct GradingSide {
    std::filesystem::path data;  ///< a folder of files
    /// Drawn anew for each grading.
    std::uint64_t secret = 0;
    Answers* answers = nullptr;  ///< must outlive all judges
};

/// The allowed distance of a student's figure from the expected one, in percent of the
/// expected figure, rounded up.
struct Allowed {
    int percent_less = 0;
    int percent_more = 0;
};
/// As Allowed::percent_more: the figure may be as high as it likes.
inline constexpr int kAnyMore = -1;

/// What to do about a figure that is too high, and about one that is too low.
struct Advice {
    Advice(const char* if_high = "", const char* if_low = "")
        : less(if_high), more(if_low) {}
    Advice(std::string if_high) : less(std::move(if_high)) {}

    std::string less;
    std::string more;
};

/// The unit of virtual time; times are shown in a suitable unit.
inline constexpr const char* kPicoseconds = "ps";

/// A figure of one rank, read from its report.
struct RankFigure {
    const char* name;
    const char* unit;
    std::int64_t (*value)(const RankReport&);
};
inline constexpr RankFigure kMessages{
    "messages", "messages", [](const RankReport& rank) { return rank.messages_sent(); }};
inline constexpr RankFigure kSent{
    "sent", "bytes", [](const RankReport& rank) { return rank.bytes_sent(); }};
inline constexpr RankFigure kPeak{
    "peak", "bytes of memory", [](const RankReport& rank) { return rank.memory.peak; }};
inline constexpr RankFigure kFlops{"computed", "flops",
                                   [](const RankReport& rank) { return rank.flops; }};

/// A figure to compare on each rank, and its allowed distance from the reference's
/// figure. `less` and `more` are as in Advice.
struct AskedFigure {
    RankFigure figure;
    Allowed allowed{};
    const char* less = "";
    const char* more = "";
};

/// How the values that a run leaves are compared with the reference's values.
struct AskedValues {
    /// Names of tensors; if empty, all tensors that the reference leaves on any rank.
    std::vector<std::string> tensors{};
    /// Returns a tensor's name for sentences. If not set, the tensor's own name is used.
    std::function<std::string(const std::string& tensor)> called{};
    /// Returns why the values that all ranks left under a name are wrong. If the text is
    /// empty, the judge looks for a mistake that leaves the same values.
    std::function<std::string(const std::string& tensor,
                              const std::vector<HostTensor>& left)>
        cause{};
    double bound = 1e-10;  ///< as in Judge::close()
    /// Also requires the same bits on all ranks.
    bool same_on_ranks = false;
};

/// Runs the student's tasks for a criterion, compares results, and keeps what was asked
/// and measured. The first check that fails ends the criterion, by throwing No.
class Judge {
  public:
    Judge(StudentWork& work, const GradingSide& own) : work_(work), own_(own) {}

    /// Sets the assignment, and the id of the criterion that is judged now. Criteria must
    /// not call these functions. The assignment must outlive this.
    void set_assignment(const Assignment& assignment) { assignment_ = &assignment; }
    void set_criterion(const std::string& id) { criterion_ = id; }
    /// Returns the exercise of the criterion that is judged: "a1.2".
    std::string exercise() const { return criterion_.substr(0, criterion_.find('-')); }

    /// From now on, compares with the runs of `other` instead of the reference's. If
    /// `other` has a mistake that another criterion has already punished, the same
    /// mistake costs no points here.
    void compare_with(const Solution& other);

    /// Thrown if a check fails. Criteria must not use this.
    struct No {
        Mark mark = Mark::failed;
        std::string asked;
        std::string measured;
        std::string said;

        /// Sets the cause, if one is known.
        void explain(const std::string& cause) {
            if (!cause.empty()) said = cause;
        }
    };

    /// Returns the result of a run that reached its end; throws No if it did not.
    const TaskResult& run(const TaskRun& run);
    /// Returns one of the assignment's files as the student wrote it; it may contain any
    /// bytes.
    std::string file(const std::string& name) const { return work_.file(name); }

    /// Returns a file of the grader's own data for this assignment.
    std::string data(const std::string& name) const;

    /// Checks that `got` is close to `expected`: the same shape, and every element within
    /// `bound` times the largest expected value (or times 1 if that is larger). NaN is
    /// close to no number.
    void close(const std::string& what, const HostTensor& got, const HostTensor& expected,
               double bound = 1e-10);
    static bool are_close(const HostTensor& got, const HostTensor& expected,
                          double bound = 1e-10);
    /// Checks that `got` has the same bits as `expected`.
    void same(const std::string& what, const HostTensor& got, const HostTensor& expected);
    /// Returns the tensor that the task left under that name on a rank. It may have any
    /// shape and type.
    const HostTensor& left(const RankResult& rank, const std::string& name);
    /// Checks shape and type; `what` names the tensor in sentences.
    static void form(const std::string& what, const HostTensor& got, const Shape& shape,
                     DType dtype = DType::f64);

    /// Checks that `measured` is within the allowed distance of `expected`, a formula's
    /// result. The unit of a time is kPicoseconds.
    void figure(const std::string& name, const std::string& unit, std::int64_t expected,
                std::int64_t measured, Allowed allowed = {}, const Advice& advice = {});
    /// Returns the result of the reference's run.
    const TaskResult& right(const TaskRun& run) const { return own_.answers->right(run); }
    /// Checks that a run left the same values as the reference's run. Throws GradingError
    /// if the reference leaves no value with such a name: nothing would be compared.
    void as_right(const TaskRun& run, const AskedValues& asked = {});
    /// Checks that no rank has changed its input tensors, which the task must leave under
    /// their names.
    void given_as_before(const TaskRun& run);
    /// Checks that a run's figure is within the allowed distance of the reference's. If
    /// there is no advice, the report has the sentence of a mistake with the same costs.
    void figure_as_right(const TaskRun& run, const std::string& name,
                         const std::string& unit,
                         const std::function<std::int64_t(const RunReport&)>& measure,
                         Allowed allowed = {}, const Advice& advice = {});
    // Check in the same way: figures of each rank; each rank's messages and bytes; each
    // rank's bytes by verb; the time of all ranks. `exercise` is "a1.2".
    // If a rank holds too many bytes of memory, the report says which lines made what the
    // rank holds at its peak.
    void figures_as_right(const TaskRun& run, const std::string& exercise,
                          const std::vector<AskedFigure>& figures);
    void traffic_as_right(const TaskRun& run, const std::string& exercise,
                          Allowed allowed = {});
    void verbs_as_right(const TaskRun& run, const std::string& exercise);
    void time_as_right(const TaskRun& run, const std::string& exercise, Allowed allowed,
                       const Advice& advice = {});
    // The bytes that each rank's operations of a name (ops::AdamW::kName) read and write.
    void moved_as_right(const TaskRun& run, const std::string& exercise,
                        const std::string& operation, Allowed allowed,
                        const Advice& advice = {});
    /// Returns the sentence of the first mistake whose run `fits`; empty if none does.
    std::string mistake(const TaskRun& run,
                        const std::function<bool(const TaskResult&)>& fits) const {
        return own_.answers->mistake(run, criterion_, fits);
    }
    /// Makes checks of another criterion, which must pass first. If they fail and that
    /// criterion fails, too, the report only names it and does not repeat its checks. If
    /// that criterion passes in its own runs, the report says what is wrong here.
    void needs(const std::string& id, const std::function<void(Judge&)>& before) const;
    /// Returns whether all checks in `asked` pass.
    bool meets(const std::function<void(Judge&)>& asked) const;
    /// Checks that a run reaches its end, and makes the checks of the exercise's
    /// criterion for values. A run's cost counts only if its values are right, because
    /// doing nothing is fast.
    void needs_values(
        const TaskRun& run,
        const std::function<void(Judge&, const TaskRun&)>& values = {}) const;
    /// The directions of a ring.
    enum class Way : std::uint8_t { to_next, to_rank_before };
    /// Returns a run around a ring that reached its end and called only send and recv.
    const TaskResult& run_ring(const TaskRun& run, Way way);
    /// Checks that all messages are sent by send and recv, and in the direction `way`.
    /// `name` is the name of the case.
    void one_way(const std::string& name, const RunReport& report, Way way);
    /// Returns a sentence if all messages are sent in the direction opposite to `way`.
    static std::string other_way(const RunReport& report, int ranks, Way way);

    void ask(bool answer, const std::string& asked, const std::string& measured,
             const std::string& said = "");

    /// Draws a number in [low, high]. The same name gives the same number in one grading,
    /// and another number in the next grading.
    std::int64_t draw(const std::string& name, std::int64_t low, std::int64_t high) const;
    /// Draws normal values, f64. The same name gives the same values in one grading, and
    /// other values in the next, so that no program can compute another rank's values.
    HostTensor normal(const std::string& name, const Shape& shape) const;

    /// Return what the checks so far have asked for, and what they have measured.
    std::string asked() const;
    std::string measured() const;

  private:
    void rank_as_right(const TaskRun& run, const std::string& exercise, std::size_t rank,
                       const AskedFigure& asked);
    /// Returns whether a criterion passes in its own runs.
    bool passes(const std::string& id) const;
    /// Returns a sentence about what fills the rank's memory at its peak; empty if
    /// another run of the task does not show it.
    std::string held_at_peak(const TaskRun& run, std::size_t rank) const;
    /// Checks that all messages are sent by send and recv; `name` names the case.
    void by_send_and_recv(const std::string& name, const RunReport& report);
    void tensor_as_right(const TaskRun& run, const std::string& name,
                         const AskedValues& asked);
    void same_on_ranks(const TaskRun& run, const std::string& name,
                       const AskedValues& asked);
    std::string cause_of(const TaskRun& run, const std::string& name,
                         const TaskResult& result, const AskedValues& asked) const;

    StudentWork& work_;
    GradingSide own_;
    std::shared_ptr<Answers> others_;  ///< replaces the grading side's answers
    const Assignment* assignment_ = nullptr;
    std::string criterion_;  ///< id of the criterion that is judged
    bool explains_ = true;   ///< looks for the mistake behind a failed check
    std::vector<std::string> asked_;
    std::vector<std::string> measured_;
};

/// The result of a criterion.
struct Judgement {
    Mark mark = Mark::not_judged;
    std::string asked{};
    std::string measured{};
    std::string said{};
};

/// Judges the criterion with that index. If one of its `needs` fails, its own checks are
/// not made. If its own checks fail and a criterion of `after` fails, the judgement only
/// names that criterion. Any problem in the student's results fails the criterion. A
/// problem of the machine or the grader is thrown: MissingError, std::system_error,
/// GradingError.
Judgement judgement_of(const Assignment& assignment, std::size_t index, Judge judge);

}  // namespace lockstep::lessons
