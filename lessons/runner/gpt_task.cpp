#include "lessons/runner/gpt_task.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lessons/runner/input_files.hpp"
#include "src/core/philox.hpp"
#include "src/core/require.hpp"
#include "src/parallel/train_step.hpp"
#include "src/report/describe.hpp"

namespace lockstep::lessons {

namespace {

/// Refuses a task that is too large or takes too long: a lesson trains it several times.
void require_trainable(const GptTask& task) {
    constexpr std::int64_t kMostParameters = 20'000'000;
    constexpr std::int64_t kMostTokens = 65'536;
    const GptSizes& sizes = task.sizes;
    const std::int64_t parameters = sizes.parameters();
    require(sizes.vocabulary > 1,
            "the text has only one character, repeated; there is nothing to predict");
    require(
        parameters <= kMostParameters,
        "layers={}, hidden={} make a GPT of {} parameters; this lesson trains at most {}",
        sizes.layers, sizes.block.hidden, parameters, kMostParameters);
    require(task.tokens() <= kMostTokens,
            "batch={} sequences of context={} are {} tokens a step; this lesson takes at "
            "most {}",
            task.batch, sizes.context, task.tokens(), kMostTokens);
}

/// Draws where the sequences of all steps begin.
void draw_starts(GptTask& task, std::uint64_t seed) {
    const std::int64_t choices =
        static_cast<std::int64_t>(task.text.ids.size()) - task.length();
    require(choices > 0, "the text has {} characters; sequences of {} need at least {}",
            task.text.ids.size(), task.length(), task.length() + 1);
    const RandomStream stream(seed, "gpt/starts");
    for (std::int64_t i = 0; i < task.steps * task.batch; ++i)
        task.starts.push_back(
            static_cast<std::int32_t>(stream.bits(static_cast<std::uint64_t>(i)) %
                                      static_cast<std::uint64_t>(choices)));
}

}  // namespace

std::shared_ptr<const GptTask> make_gpt_task(
    const LessonOptions& options, std::int64_t batch,
    const std::function<GptSizes(std::int64_t vocabulary)>& sizes) {
    const auto made = std::make_shared<GptTask>();
    GptTask& task = *made;
    task.batch = batch;
    task.dtype = options.dtype;
    task.seed = options.seed;
    task.steps = static_cast<int>(options.values.integer("steps"));
    task.learning_rate = options.values.number("learning_rate");
    task.text = options.text ? load_text(*options.text)
                             : read_text(lesson_text(), "the lesson's text");
    task.sizes = sizes(static_cast<std::int64_t>(task.text.vocabulary.size()));
    require_trainable(task);
    draw_starts(task, options.seed);
    return made;
}

void require_shared_out(const std::string& key, std::int64_t value, std::int64_t parts,
                        const std::string& what) {
    require(value % parts == 0,
            "--set {}={}: {} divide it into equal parts, so it must be a multiple of {}",
            key, value, what, parts);
}

void note_task(Lesson& lesson, const GptTask& task,
               const std::vector<std::string>& keys) {
    const BlockSizes& block = task.sizes.block;
    const std::map<std::string, std::int64_t> sizes{{"layers", task.sizes.layers},
                                                    {"context", task.sizes.context},
                                                    {"batch", task.batch},
                                                    {"heads", block.heads},
                                                    {"kv_heads", block.kv_heads},
                                                    {"hidden", block.hidden},
                                                    {"experts", block.experts.count},
                                                    {"inner", block.experts.inner}};
    for (const std::string& key : keys)
        lesson.note(key, sizes.at(key));
    lesson.record().options.sum_length = task.tokens() * task.steps;
}

HostTokens tokens_of(const GptTask& task, int step, std::int64_t first,
                     std::int64_t count) {
    HostTensor tokens({task.length() + 1, count}, DType::i32);
    const auto values = tokens.values<std::int32_t>();
    for (std::int64_t i = 0; i <= task.length(); ++i) {
        for (std::int64_t j = 0; j < count; ++j) {
            const std::int64_t start = task.starts[step * task.batch + first + j];
            values[i * count + j] = task.text.ids[start + i];
        }
    }
    return {tokens.rows(0, task.length()), tokens.rows(1, task.length())};
}

MicroBatch upload_tokens(Device& device, const GptTask& task, int step,
                         std::int64_t first, std::int64_t count, double weight,
                         const TokenDeal& deal) {
    if (!device.has_numbers()) {
        const HostTensor none({deal.share_of(task.length(), "the GPT"), count},
                              DType::i32);
        return {device.upload(none), device.upload(none), weight};
    }
    const HostTokens tokens = tokens_of(task, step, first, count);
    return {device.upload(dealt_rows(tokens.ids, deal)),
            device.upload(dealt_rows(tokens.next, deal)), weight};
}

std::vector<MicroBatch> upload_batches(Device& device, const GptTask& task, int step,
                                       int first, int count, int all) {
    const std::int64_t size = task.batch / all;
    std::vector<MicroBatch> batches;
    batches.reserve(static_cast<std::size_t>(count));
    for (int i = first; i < first + count; ++i)
        batches.push_back(upload_tokens(device, task, step, i * size, size, 1.0 / all));
    return batches;
}

void train_gpt(Rank& rank, Module& gpt, const GptTask& task, const Loss& loss,
               const std::function<std::vector<MicroBatch>(int step)>& batches,
               const Advance& advance, const std::function<Tensor(Tensor)>& after) {
    AllReduceSync sync(gpt.parameters());
    const auto optimizer = make_optimizer<Sgd>(gpt.parameters(), task.optimizer());
    const auto step = [&](int i) {
        Tensor share = train_step(rank.device(), gpt, loss, batches(i), sync, *optimizer);
        return after ? after(std::move(share)) : share;
    };
    train(rank, gpt.parameters(), task.steps, step, advance);
}

RunReport train_gpt_alone(Cluster& cluster, const GptTask& task, int micro_batches,
                          const Advance& advance) {
    return cluster.run([&](Rank& rank) {
        const auto gpt = make_gpt(task.init(rank.device()), task.sizes);
        const auto batches = [&](int step) {
            return upload_batches(rank.device(), task, step, 0, micro_batches,
                                  micro_batches);
        };
        train_gpt(rank, *gpt, task, cross_entropy_loss, batches, advance);
    });
}

void record_gpt_inputs(Record& record, const GptTask& task) {
    const auto keep = [&](const std::string& name, Shape shape, const auto& values) {
        record.inputs.insert_or_assign(
            "gpt/" + name, HostTensor::of(shape, std::vector<std::int32_t>(
                                                     values.begin(), values.end())));
    };
    keep("ids", Shape::flat(static_cast<std::int64_t>(task.text.ids.size())),
         task.text.ids);
    keep("vocabulary", Shape::flat(task.sizes.vocabulary), task.text.vocabulary);
    keep("starts", Shape{task.steps, task.batch}, task.starts);
    record.models["gpt"] =
        trained(describe(task.sizes), describe(task.optimizer(), record.options.dtype),
                "cross_entropy", 1, task.steps);
}

void record_training(Record& record, const std::string& variant, bool alone,
                     const std::vector<double>& losses, const RunReport& report) {
    const auto put = [&](NamedTensors& tensors, const std::string& name,
                         const std::string& prefix) {
        for (const auto& [parameter, tensor] : kept_under(report, prefix))
            tensors.insert_or_assign(fmt::format("{}/{}{}", name, prefix, parameter),
                                     tensor);
    };
    if (alone) put(record.inputs, "gpt", "initial/");
    put(record.outputs, variant, "grad/");
    put(record.outputs, variant, "");
    record.outputs.insert_or_assign(
        variant + "/loss",
        HostTensor::of(Shape::flat(static_cast<std::int64_t>(losses.size())), losses));
}

}  // namespace lockstep::lessons
