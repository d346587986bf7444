#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lessons/07_ring_self_attention/attention_problem.hpp"
#include "lessons/07_ring_self_attention/gpt_context.hpp"
#include "lessons/runner/lesson.hpp"
#include "lessons/runner/rounding.hpp"

namespace lockstep::lessons {

/// The lesson's experiments: those about methods and what they send are in lesson.cpp,
/// those about long sequences in long_context.cpp.
class RingLesson final : public Lesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    RingLesson(const LessonOptions& options, Record& record);

    std::vector<Experiment> experiments() override;

  private:
    void reach(Findings& found);
    void scores(Findings& found);
    void output(Findings& found);
    void bytes(Findings& found);
    void online(Findings& found);
    void other_ways(Findings& found);
    void memory(Findings& found);
    void causal(Findings& found);
    void overlap(Findings& found);
    void train(Findings& found);

    /// Stored one behind the other: scores, weights and output, their three gradients,
    /// and sums over the devices, forward and backward.
    double bound() const {
        return RoundingBound{2e-5, 1e-12}.of(options().dtype, 6 + 2 * ranks_);
    }
    /// A few tokens a device, for what is computed; and a problem of a size that is
    /// trained in earnest, in 16 bits, for shapes only.
    AttentionProblem small(bool causal) const;
    AttentionProblem large() const;
    /// Leaves what goes into the small problem in the record.
    void record_small();

    /// Runs a method on the small problem, leaves y and dx in the record,
    /// and holds them against one device's.
    void check_method(Findings& found, ContextMethod method);
    /// The largest relative difference of y and dx from one device's.
    double core_difference(const std::string& variant, const RunReport& shared,
                           bool causal);
    /// Gives the numbers and messages that a method sends on the large problem, and holds
    /// them against the formulas.
    void check_sent(Findings& found, ContextMethod method);

    void weigh_scores(Findings& found);
    void find_longest(Findings& found);
    void give_pairs(Findings& found, const std::vector<RunReport>& runs);
    void give_blocks(Findings& found);
    /// Forward of Ring Attention on the large problem, by an order, on
    /// devices whose arithmetic alone takes time.
    RunReport run_causal(TokenOrder order) const;

    std::vector<double> train_on(Findings& found, const ContextRun& run,
                                 const std::string& variant, const std::string& check);
    void give_contexts(Findings& found, std::int64_t capacity);
    void train_all(Findings& found, std::int64_t capacity);
    ContextRun shared_run() const;

    int ranks_;
    std::shared_ptr<const GptTask> task_;
    ContextMethod method_;
    TokenOrder order_;
};

/// How a page calls a method: "ring_attention".
std::string key_of(ContextMethod method);

}  // namespace lockstep::lessons
