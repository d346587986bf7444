#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lessons/03_tensor_parallel_block/block_runs.hpp"
#include "lessons/03_tensor_parallel_block/gpt_training.hpp"
#include "lessons/runner/lesson.hpp"
#include "lessons/runner/rounding.hpp"

namespace lockstep::lessons {

/// The lesson's steps. 1 to 4 are in lesson.cpp, 5 to 7 in gpt_steps.cpp.
class TensorParallelLesson final : public Lesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    TensorParallelLesson(const LessonOptions& options, Record& record);

    std::vector<Step> steps() override;

  private:
    void attention(Page& page);
    void block(Page& page);
    void memory(Page& page);
    void sequence(Page& page);
    void vocabulary(Page& page);
    void train(Page& page);
    void size(Page& page);

    /// Shows the output if c_attn is cut as if it were one layer; `right` is y.
    void show_bad_cut(Page& page, const Twins& cut, const HostTensor& right);
    /// Shows the bytes of the loss over a vocabulary that is shared out,
    /// `columns` a device.
    void show_loss_bytes(Page& page, const RunReport& shared, std::int64_t columns);
    void show_block_bytes(Page& page, const RunReport& forward, const RunReport& both);
    double bound() const {
        return RoundingBound{2e-5, 1e-12}.of(options().dtype, block_stores(ranks_));
    }
    /// Trains on `ranks` devices, and leaves it in the record.
    RunReport train_on(Page& page, int ranks, Regions regions,
                       const std::string& variant);
    Curves train_on_all(Page& page);

    int ranks_;
    std::shared_ptr<const GptTask> task_;
};

/// The lesson `tensor-parallel-block`: a transformer block, and a whole
/// GPT, whose weights several devices share out.
LessonEntry tensor_parallel_block_lesson();

}  // namespace lockstep::lessons
