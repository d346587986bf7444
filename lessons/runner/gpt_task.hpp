#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lessons/runner/input_files.hpp"
#include "lessons/runner/lesson.hpp"
#include "src/nn/gpt.hpp"
#include "src/parallel/gradient_accumulation.hpp"
#include "src/trial/outcome.hpp"
#include "src/trial/training.hpp"

namespace lockstep::lessons {

/// A text, a GPT that predicts its characters, and how it is trained.
struct GptTask {
    Text text;
    GptSizes sizes;
    std::int64_t batch = 0;  ///< sequences of `sizes.context` characters per step
    int steps = 0;
    double learning_rate = 0;
    double momentum = 0.9;
    DType dtype = DType::f32;
    std::uint64_t seed = 1;
    std::vector<std::int32_t> starts;  ///< where sequences begin, (steps, batch)

    std::int64_t length() const { return sizes.context; }
    std::int64_t tokens() const { return length() * batch; }
    SgdOptions optimizer() const { return {learning_rate, momentum, 0}; }
    ParameterInit init(Device& device) const { return {device, dtype, seed, ""}; }
};

/// Makes a task from the text of --text, or else from the lessons' own text. The task has
/// `batch` sequences per step, the settings `steps` and `learning_rate` (the lesson must
/// declare them), and the options' dtype and seed. `sizes` returns the model's sizes for
/// the number of different characters. Throws UsageError if the task is too large or too
/// small for a lesson.
std::shared_ptr<const GptTask> make_gpt_task(
    const LessonOptions& options, std::int64_t batch,
    const std::function<GptSizes(std::int64_t vocabulary)>& sizes);

/// Throws UsageError unless the value of the setting `key` is a multiple of `parts`,
/// because `what` ("the heads") divide the value into equal parts.
void require_shared_out(const std::string& key, std::int64_t value, std::int64_t parts,
                        const std::string& what);

/// Notes in the record the values of the task's settings ("heads", "context", …), and how
/// many terms are added to a weight in the run: one per token and step.
void note_task(Lesson& lesson, const GptTask& task, const std::vector<std::string>& keys);

/// Sequences, (s, b): the characters that the GPT reads, and the character after each.
struct HostTokens {
    HostTensor ids;
    HostTensor next;
};

/// Returns sequences [first, first + count) of a step.
HostTokens tokens_of(const GptTask& task, int step, std::int64_t first,
                     std::int64_t count);

/// Uploads the sequences, or only this rank's tokens if `deal` shards tokens over ranks.
/// If only shapes are computed, the tokens are zeros.
MicroBatch upload_tokens(Device& device, const GptTask& task, int step,
                         std::int64_t first, std::int64_t count, double weight = 1,
                         const TokenDeal& deal = {});

/// Divides a step's batch into `all` equal micro-batches and uploads [first, first +
/// count) of them, each with its weight in the batch's mean.
std::vector<MicroBatch> upload_batches(Device& device, const GptTask& task, int step,
                                       int first, int count, int all);

/// Trains the task's GPT on one rank with train() and SGD, on this rank's micro-batches
/// of each step. `after`, if given, gets each step's loss and returns the loss to keep.
void train_gpt(Rank& rank, Module& gpt, const GptTask& task, const Loss& loss,
               const std::function<std::vector<MicroBatch>(int step)>& batches,
               const Advance& advance, const std::function<Tensor(Tensor)>& after = {});
/// Trains on one device, with this number of micro-batches one after another.
RunReport train_gpt_alone(Cluster& cluster, const GptTask& task, int micro_batches,
                          const Advance& advance = {});

/// Adds everything that another program needs to repeat the training.
void record_gpt_inputs(Record& record, const GptTask& task);

/// Adds the results of a training run under the name `variant`: its losses, and what
/// train() kept. If `alone` is true (a run on one device), also adds the initial
/// parameters as inputs of all variants, "gpt/initial/".
void record_training(Record& record, const std::string& variant, bool alone,
                     const std::vector<double>& losses, const RunReport& report);

}  // namespace lockstep::lessons
