#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lessons/04_tensor_parallel_block/block_runs.hpp"
#include "lessons/04_tensor_parallel_block/gpt_training.hpp"
#include "lessons/runner/lesson.hpp"
#include "lessons/runner/rounding.hpp"

namespace lockstep::lessons {

/// The lesson's experiments, and what later ones need of earlier ones.
class TensorParallelLesson final : public Lesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    TensorParallelLesson(const LessonOptions& options, Record& record);

    std::vector<Experiment> experiments() override;

  private:
    void attention(Findings& found);
    void block(Findings& found);
    void memory(Findings& found);
    void sequence(Findings& found);
    void vocabulary(Findings& found);
    void train(Findings& found);
    void size(Findings& found);

    /// How far the output is from `right` if c_attn is cut as if it were one layer: the
    /// largest difference over the largest number of `right`.
    double bad_cut(const Twins& cut, const HostTensor& right);
    void give_block_bytes(Findings& found, const RunReport& forward,
                          const RunReport& both);
    void give_peak(Findings& found, const BlockSizes& sizes, std::int64_t length,
                   const Activations& measured);
    /// Returns what the checker says if each device updates norms with its own part of
    /// their gradients.
    std::string diagnosis_of_parts() const;
    /// Gives the bytes of the loss over a vocabulary that is shared out, `columns` a
    /// device.
    void give_loss_bytes(Findings& found, const RunReport& shared, std::int64_t columns);
    double bound() const {
        return RoundingBound{2e-5, 1e-12}.of(options().dtype, block_stores(ranks_));
    }
    /// Trains on `ranks` devices, and leaves it in the record.
    RunReport train_on(int ranks, Regions regions, const std::string& variant);
    Curves train_on_all();

    int ranks_;
    std::shared_ptr<const GptTask> task_;
};

/// The lesson `tensor-parallel-block`: a transformer block, and a whole
/// GPT, whose weights several devices share out.
LessonEntry tensor_parallel_block_lesson();

}  // namespace lockstep::lessons
