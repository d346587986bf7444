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

/// A text, a GPT of its characters, and how it is trained.
struct GptTask {
    Text text;
    GptSizes sizes;
    std::int64_t batch = 0;  ///< sequences of `sizes.context` characters a step
    int steps = 0;
    double learning_rate = 0;
    double momentum = 0.9;
    DType dtype = DType::f32;
    std::uint64_t seed = 1;
    std::vector<std::int32_t> starts;  ///< of sequences, (steps, batch)

    std::int64_t length() const { return sizes.context; }
    std::int64_t tokens() const { return length() * batch; }
    SgdOptions optimizer() const { return {learning_rate, momentum, 0}; }
    ParameterInit init(Device& device) const { return {device, dtype, seed, ""}; }
};

/// Makes a task of the text of --text, or the one that lessons share; of `batch`
/// sequences a step; of the settings `steps` and `learning_rate`, which the lesson
/// declares; of their dtype and seed; and of `sizes` by the number of different
/// characters. Throws UsageError if they make what a lesson had better not train.
std::shared_ptr<const GptTask> make_gpt_task(
    const LessonOptions& options, std::int64_t batch,
    const std::function<GptSizes(std::int64_t vocabulary)>& sizes);

/// Throws UsageError unless the value of the setting `key` is a multiple of `by`, since
/// `what` ("the heads") share it out.
void require_shared_out(const std::string& key, std::int64_t value, std::int64_t by,
                        const std::string& what);

/// Leaves in the record what settings of the task came to, "heads", "context", …, and of
/// how many terms a weight is a sum: one for each token of each step.
void note_task(Lesson& lesson, const GptTask& task, const std::vector<std::string>& keys);

/// Sequences (s, b): what is read, and the characters that come next.
struct HostTokens {
    HostTensor ids;
    HostTensor next;
};

/// Returns sequences [first, first + count) of a step.
HostTokens tokens_of(const GptTask& task, int step, std::int64_t first,
                     std::int64_t count);

/// Uploads the sequences, or this rank's tokens of each if they are dealt to several. In
/// a run of shapes only they are zeros.
MicroBatch upload_tokens(Device& device, const GptTask& task, int step,
                         std::int64_t first, std::int64_t count, double weight = 1,
                         const TokenDeal& deal = {});

/// Uploads micro-batches [first, first + count) of the `all` equal ones that a step's
/// batch is cut into, each with its weight in the batch's mean.
std::vector<MicroBatch> upload_batches(Device& device, const GptTask& task, int step,
                                       int first, int count, int all);

/// Trains the task's GPT on one rank by train(), with SGD, on this rank's micro-batches
/// of each step. `after`, if there is one, sees each step's loss, and says which one to
/// keep.
void train_gpt(Rank& rank, Module& gpt, const GptTask& task, const Loss& loss,
               const std::function<std::vector<MicroBatch>(int step)>& batches,
               const Advance& advance, const std::function<Tensor(Tensor)>& after = {});
/// Trains on one device, one of so many micro-batches after another.
RunReport train_gpt_alone(Cluster& cluster, const GptTask& task, int micro_batches,
                          const Advance& advance = {});

/// Adds what another program needs to train the same.
void record_gpt_inputs(Record& record, const GptTask& task);

/// Adds what a run of training ended with, as `variant`: its losses, and what train()
/// kept. The run that is `alone` on its device adds what all begin with, "initial/", too.
void record_training(Record& record, const std::string& variant, bool alone,
                     const std::vector<double>& losses, const RunReport& report);

}  // namespace lockstep::lessons
