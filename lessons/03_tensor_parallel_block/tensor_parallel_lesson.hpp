#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lessons/03_tensor_parallel_block/gpt_training.hpp"
#include "lessons/03_tensor_parallel_block/twins.hpp"
#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// The lesson's steps. 1 and 2 are in twin_steps.cpp, 3 and 4 in
/// memory_steps.cpp, 5 in vocabulary_step.cpp, 6 in training_step.cpp, 7 in
/// sizing_step.cpp.
class TensorParallelLesson final : public Lesson {
  public:
    /// Throws UsageError where the options ask for what cannot be.
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

    /// What comes of c_attn cut as if it were one layer; `right` is y.
    void show_bad_cut(Page& page, const Twins& cut,
                      const HostTensor& right);
    /// Of the loss of a shared vocabulary, `columns` a device.
    void show_loss_bytes(Page& page, const RunReport& shared,
                         std::int64_t columns);
    void show_block_bytes(Page& page, const RunReport& forward,
                          const RunReport& both);
    double bound() const {
        return options().dtype == DType::f64 ? 1e-12 : 2e-5;
    }
    /// Trains on `ranks` devices, and leaves it in the record.
    RunReport train_on(Page& page, int ranks, Regions regions,
                       const std::string& variant);
    Curves train_on_all(Page& page);

    int ranks_;
    std::shared_ptr<const GptTask> task_;
};

}  // namespace lockstep::lessons
