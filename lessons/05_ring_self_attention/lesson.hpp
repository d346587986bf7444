#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lessons/05_ring_self_attention/attention_problem.hpp"
#include "lessons/05_ring_self_attention/gpt_context.hpp"
#include "lessons/runner/lesson.hpp"
#include "lessons/runner/rounding.hpp"

namespace lockstep::lessons {

/// The lesson's steps. 1 to 5 are in lesson.cpp, 6 to 9 in long_context_steps.cpp.
class RingLesson final : public Lesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    RingLesson(const LessonOptions& options, Record& record);

    std::vector<Step> steps() override;

  private:
    void whole_block(Page& page);
    void scores(Page& page);
    void output(Page& page);
    void bytes(Page& page);
    void online(Page& page);
    void memory(Page& page);
    void causal(Page& page);
    void overlap(Page& page);
    void train(Page& page);

    /// Stored one behind the other: scores, weights and output, their three gradients,
    /// and sums over the devices, forward and backward.
    double bound() const {
        return RoundingBound{2e-5, 1e-12}.of(options().dtype, 6 + 2 * ranks_);
    }
    /// A few tokens a device, for steps 2, 3 and 5; and one of a size that
    /// is trained in earnest, in 16 bits, for shapes only.
    AttentionProblem small(bool causal) const;
    AttentionProblem large() const;
    /// Leaves what goes into the small problem in the record.
    void record_small();

    /// Runs a method on the small problem, leaves y and dx in the record,
    /// and holds them against one device's.
    void check_method(Page& page, ContextMethod method);
    void check_core(Page& page, const std::string& variant, const RunReport& shared,
                    bool causal);

    void show_reach(Page& page);
    void show_hops(Page& page, const AttentionProblem& problem);
    void show_shared_weights(Page& page);
    void show_pencil(Page& page);
    void show_square(Page& page);
    void show_longest(Page& page);
    void show_pairs(Page& page);
    void show_blocks(Page& page);
    /// Forward of Ring Attention on the large problem, by an order, on
    /// devices whose arithmetic alone takes time.
    RunReport run_causal(TokenOrder order) const;

    std::vector<double> train_on(Page& page, const ContextRun& run,
                                 const std::string& variant);
    void show_contexts(Page& page, std::int64_t capacity);
    void train_all(Page& page, std::int64_t capacity);
    ContextRun shared_run() const;

    int ranks_;
    std::shared_ptr<const GptTask> task_;
    ContextMethod method_;
    TokenOrder order_;
};

/// The lesson `ring-self-attention`: sequences whose tokens lie on several
/// devices, and the attention that has to see them all.
LessonEntry ring_self_attention_lesson();

}  // namespace lockstep::lessons
