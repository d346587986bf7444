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

/// The grader has this, and students have not.
struct GradingSide {
    std::filesystem::path data;  ///< a folder of files
    /// Drawn anew for each grading.
    std::uint64_t secret = 0;
    Answers* answers = nullptr;  ///< outlives all judges
};

/// How far from what is expected a student's figure may be, in hundredths of it; rounded
/// outwards.
struct Allowed {
    int percent_less = 0;
    int percent_more = 0;
};

/// The unit of virtual time, which is shown in the unit that suits it.
inline constexpr const char* kPicoseconds = "ps";

/// A figure of one rank, as its report has it.
struct RankFigure {
    const char* name;
    const char* unit;
    std::int64_t (*of)(const RankReport&);
};
inline constexpr RankFigure kMessages{
    "messages", "messages", [](const RankReport& rank) { return rank.messages_sent(); }};
inline constexpr RankFigure kSent{
    "sent", "bytes", [](const RankReport& rank) { return rank.bytes_sent(); }};
inline constexpr RankFigure kPeak{
    "peak", "bytes of memory", [](const RankReport& rank) { return rank.memory.peak; }};

/// A figure that is asked of each rank, and what is allowed beside the reference's;
/// `less` says how it becomes less, if it is more.
struct AskedFigure {
    RankFigure figure;
    Allowed allowed{};
    const char* less = "";
};

/// What is asked of the values that a run left.
struct AskedValues {
    /// Names of tensors; none stands for all that the reference leaves, on each rank.
    std::vector<std::string> tensors{};
    /// What a tensor is called in sentences, if not by its name.
    std::function<std::string(const std::string& tensor)> called{};
    /// Says what is wrong with what all ranks left under a name, or nothing. A mistake
    /// that leaves the same is looked for behind it.
    std::function<std::string(const std::string& tensor,
                              const std::vector<HostTensor>& left)>
        cause{};
    double bound = 1e-10;  ///< as Judge::close() has it
    /// All ranks leave the same bits, too.
    bool same_on_ranks = false;
};

/// A criterion asks its questions through this: it runs the student's tasks, compares,
/// and keeps what was asked and measured. A question that is answered with no ends the
/// criterion.
class Judge {
  public:
    Judge(StudentWork& work, const GradingSide& own) : work_(work), own_(own) {}

    /// Not for criteria: the id of the one that asks from now on.
    void set_criterion(const std::string& id) { criterion_ = id; }
    /// Returns the exercise whose criterion asks: "a1.2".
    std::string exercise() const { return criterion_.substr(0, criterion_.find('-')); }

    /// Asks from now on for what another solution than the reference makes of a run: one
    /// whose mistake costs no more than it did elsewhere.
    void compare_with(const Solution& other);

    /// Not for criteria: how a question was answered with no.
    struct No {
        Mark mark = Mark::failed;
        std::string asked;
        std::string measured;
        std::string said;

        /// Says the cause, if one is known.
        void explain(const std::string& cause) {
            if (!cause.empty()) said = cause;
        }
    };

    /// Returns what came of a run that came to its end.
    const TaskResult& run(const TaskRun& run);
    /// One of the assignment's files, as the student has it: any bytes.
    std::string file(const std::string& name) const { return work_.file(name); }

    /// A file of the grader's own data for this assignment.
    std::string data(const std::string& name) const;

    /// `got` is `expected` in other words: the same shape, and nowhere further away than
    /// `bound` times the largest value expected (or times 1). NaN is no number's
    /// neighbour.
    void close(const std::string& what, const HostTensor& got, const HostTensor& expected,
               double bound = 1e-10);
    static bool are_close(const HostTensor& got, const HostTensor& expected,
                          double bound = 1e-10);
    /// `got` has the bits of `expected`.
    void same(const std::string& what, const HostTensor& got, const HostTensor& expected);
    /// Returns what the task left under that name on a rank. It may have any form.
    const HostTensor& left(const RankResult& rank, const std::string& name);
    /// Asks that it has a form; `what` it is, for sentences.
    static void form(const std::string& what, const HostTensor& got, const Shape& shape,
                     DType dtype = DType::f64);

    /// `measured` is what a formula gives, or within what is allowed beside it; `less`
    /// says how it becomes less, if it is more. A time's unit is kPicoseconds.
    void figure(const std::string& name, const std::string& unit, std::int64_t expected,
                std::int64_t measured, Allowed allowed = {},
                const std::string& less = "");
    /// Returns what the reference makes of a run.
    const TaskResult& right(const TaskRun& run) const { return own_.answers->right(run); }
    /// The values that a run left are those of the reference. Throws GradingError if
    /// the reference leaves none of that name: comparing nothing shows nothing.
    void as_right(const TaskRun& run, const AskedValues& asked = {});
    /// What ranks were given, and the task leaves under the same names, is as it was.
    void given_as_before(const TaskRun& run);
    /// A run's figure is the reference's, or within what is allowed beside it. If not,
    /// `less` says how it becomes less, if it is more; else a mistake that costs the
    /// same.
    void figure_as_right(const TaskRun& run, const std::string& name,
                         const std::string& unit,
                         const std::function<std::int64_t(const RunReport&)>& measure,
                         Allowed allowed = {}, const std::string& less = "");
    // The same of figures of each rank, rank by rank; of its messages and bytes, of its
    // bytes by verb, and of the time that all took. `exercise` is "a1.2".
    void figures_as_right(const TaskRun& run, const std::string& exercise,
                          const std::vector<AskedFigure>& figures);
    void traffic_as_right(const TaskRun& run, const std::string& exercise,
                          Allowed allowed = {});
    void verbs_as_right(const TaskRun& run, const std::string& exercise);
    void time_as_right(const TaskRun& run, const std::string& exercise, Allowed allowed,
                       const std::string& less = "");
    /// Returns what is said of the first mistake whose run `fits`; empty if none does.
    std::string mistake(const TaskRun& run,
                        const std::function<bool(const TaskResult&)>& fits) const {
        return own_.answers->mistake(run, criterion_, fits);
    }
    /// Asks what another criterion asks, which has to be right before. If it is not, says
    /// only where that is said: what was asked there is not told here.
    void needs(const std::string& id, const std::function<void(Judge&)>& before) const;
    /// Returns whether the answer to all that is asked is yes.
    bool meets(const std::function<void(Judge&)>& asked) const;
    /// Asks first that a run comes to its end, and what the exercise's criterion of
    /// values asks of it: what a run costs counts if that is right, as doing nothing is
    /// fast.
    void needs_values(
        const TaskRun& run,
        const std::function<void(Judge&, const TaskRun&)>& values = {}) const;
    /// The ways round a ring.
    enum class Way : std::uint8_t { to_next, to_rank_before };
    /// Returns a run round a ring that came to its end and made no call but send and
    /// recv.
    const TaskResult& run_ring(const TaskRun& run, Way way);
    /// Messages go by send and recv alone, and that way round. `name` is the case's.
    void one_way(const std::string& name, const RunReport& report, Way way);
    /// Says that all messages between so many ranks go the other way round, if they do.
    static std::string other_way(const RunReport& report, int ranks, Way way);

    void ask(bool answer, const std::string& asked, const std::string& measured,
             const std::string& said = "");

    /// Drawn in [low, high]; the same for the same name, but another one in another
    /// grading.
    std::int64_t draw(const std::string& name, std::int64_t low, std::int64_t high) const;
    /// Normal, f64; the same for the same name, but others in another grading, so that
    /// nobody can make another rank's.
    HostTensor normal(const std::string& name, const Shape& shape) const;

    /// Return what was asked and measured so far.
    std::string asked() const;
    std::string measured() const;

  private:
    /// Messages go by send and recv alone. `name` is the case's.
    void by_send_and_recv(const std::string& name, const RunReport& report);
    void tensor_as_right(const TaskRun& run, const std::string& name,
                         const AskedValues& asked);
    void same_on_ranks(const TaskRun& run, const std::string& name,
                       const AskedValues& asked);
    std::string cause_of(const TaskRun& run, const std::string& name,
                         const TaskResult& result, const AskedValues& asked) const;

    StudentWork& work_;
    GradingSide own_;
    std::shared_ptr<Answers> others_;  ///< in the place of the grading side's
    std::string criterion_;            ///< the id of that which asks
    bool explains_ = true;             ///< looks for mistakes that explain a no
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

/// Judges the assignment's criterion with that index, which is not asked where one fails
/// that it needs; where it fails after another one that has failed, it says only that.
/// Whatever it meets in what the student left fails it; what the machine or the grader
/// itself lacks is thrown: MissingError, std::system_error, GradingError.
Judgement judgement_of(const Assignment& assignment, std::size_t index, Judge judge);

}  // namespace lockstep::lessons
