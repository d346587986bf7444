#include "lessons/03_tensor_parallel_block/gpt_training.hpp"

#include <fmt/format.h>

#include "lessons/runner/lesson_text.hpp"
#include "src/core/philox.hpp"
#include "src/core/require.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/sequence_parallel.hpp"
#include "src/parallel/tensor_parallel_block.hpp"
#include "src/parallel/vocabulary_parallel.hpp"

namespace lockstep::lessons {

namespace {

/// Sequences of a step, (s, b) and one character on: what is read, and what
/// comes next.
struct HostTokens {
    HostTensor ids;
    HostTensor next;
};

HostTokens tokens_of(const GptTask& task, int step) {
    HostTensor tokens({task.length() + 1, task.batch}, DType::i32);
    const auto values = tokens.values<std::int32_t>();
    for (std::int64_t i = 0; i <= task.length(); ++i) {
        for (std::int64_t j = 0; j < task.batch; ++j) {
            const std::int64_t start = task.starts[static_cast<std::size_t>(
                step * task.batch + j)];
            values[static_cast<std::size_t>(i * task.batch + j)] =
                task.text.ids[static_cast<std::size_t>(start + i)];
        }
    }
    return {tokens.rows(0, task.length()), tokens.rows(1, task.length())};
}

/// In a run of shapes only there are no numbers to keep.
void keep(Rank& rank, Module& model, const std::string& prefix,
          Tensor Parameter::*tensor) {
    if (!rank.device().has_numbers()) return;
    for (const Parameter* parameter : model.parameters())
        rank.keep(prefix + parameter->name(), parameter->*tensor);
}

/// The smallest multiple of `part` that is at least `least`.
std::int64_t multiple(std::int64_t part, std::int64_t least) {
    return (least + part - 1) / part * part;
}

GptSizes sizes_of(const LessonOptions& options, int ranks,
                  std::size_t vocabulary) {
    GptSizes sizes;
    sizes.vocabulary = static_cast<std::int64_t>(vocabulary);
    sizes.context =
        options.integer("context", multiple(ranks, 32), 1, 1024);
    sizes.layers = options.integer("layers", 2, 1, 64);
    sizes.block.heads = options.integer("heads", multiple(ranks, 4), 1, 64);
    sizes.block.hidden =
        options.integer("hidden", 16 * sizes.block.heads, 1, 1024);
    const auto divides = [&](const char* key, std::int64_t value,
                             std::int64_t by, const char* what) {
        require(value % by == 0, [&] {
            return fmt::format(
                "--set {}={}: {} share it out in equal parts, so that it "
                "must be a multiple of {}",
                key, value, what, by);
        });
    };
    const std::string devices = fmt::format("{} ranks", ranks);
    divides("heads", sizes.block.heads, ranks, devices.c_str());
    divides("context", sizes.context, ranks, devices.c_str());
    divides("hidden", sizes.block.hidden, sizes.block.heads, "the heads");
    return sizes;
}

/// What this lesson trains four times over should fit and end.
void require_trainable(const GptTask& task) {
    constexpr std::int64_t kMostParameters = 20'000'000;
    constexpr std::int64_t kMostTokens = 65'536;
    const GptSizes& sizes = task.sizes;
    const std::int64_t hidden = sizes.block.hidden;
    const std::int64_t parameters =
        sizes.layers * (12 * hidden + 13) * hidden +
        (2 * sizes.vocabulary + sizes.context + 2) * hidden;
    require(sizes.vocabulary > 1, [] {
        return std::string(
            "the text has one character over and over; there is nothing to "
            "predict");
    });
    require(parameters <= kMostParameters, [&] {
        return fmt::format(
            "layers={}, hidden={} make a GPT of {} parameters; this lesson "
            "trains at most {}",
            sizes.layers, hidden, parameters, kMostParameters);
    });
    require(task.tokens() <= kMostTokens, [&] {
        return fmt::format(
            "batch={} sequences of context={} are {} tokens a step; this "
            "lesson takes at most {}",
            task.batch, sizes.context, task.tokens(), kMostTokens);
    });
}

}  // namespace

std::unique_ptr<TensorParallel> make_regions(Regions kind, Device& device,
                                             Communicator& group) {
    if (kind == Regions::sequence_parallel)
        return std::make_unique<SequenceParallel>(device, group);
    return std::make_unique<TensorParallel>(device, group);
}

std::shared_ptr<const GptTask> make_gpt_task(const LessonOptions& options,
                                             int ranks) {
    const auto made = std::make_shared<GptTask>();
    GptTask& task = *made;
    task.batch = options.integer("batch", 8, 1, 1024);
    task.steps =
        static_cast<int>(options.integer("steps", 100, 1, 100'000));
    task.learning_rate = options.number("learning_rate", 0.2, 0, 1e6);
    task.text = options.text
                    ? load_text(*options.text)
                    : read_text(lesson_text(), "the lesson's text");
    task.sizes = sizes_of(options, ranks, task.text.vocabulary.size());
    require_trainable(task);
    const std::int64_t choices =
        static_cast<std::int64_t>(task.text.ids.size()) - task.length();
    require(choices > 0, [&] {
        return fmt::format(
            "the text has {} characters; sequences of {} need at least {}",
            task.text.ids.size(), task.length(), task.length() + 1);
    });
    const RandomStream stream(options.seed, "gpt/starts");
    for (std::int64_t i = 0; i < task.steps * task.batch; ++i)
        task.starts.push_back(static_cast<std::int32_t>(
            stream.bits(static_cast<std::uint64_t>(i)) %
            static_cast<std::uint64_t>(choices)));
    return made;
}

// lesson: tensor-parallel-training
RunReport train_gpt(Cluster& cluster, const GptTask& task, DType dtype,
                    std::uint64_t seed, Regions regions,
                    Progress* progress) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const auto tp = make_regions(regions, device, rank.world());
        const auto gpt =
            make_parallel_gpt({device, dtype, seed, ""}, *tp, task.sizes);
        Sgd optimizer(gpt->parameters(), {task.learning_rate, 0.9, 0});
        keep(rank, *gpt, "initial/", &Parameter::value);
        for (int step = 0; step < task.steps; ++step) {
            const HostTokens tokens = tokens_of(task, step);
            const Tensor ids = device.upload(tokens.ids);
            const Tensor next = device.upload(tokens.next);
            Saved saved;
            LossResult result;
            zero_gradients(*gpt);
            {
                const PhaseScope phase(device, Phase::forward);
                const Tensor logits = gpt->forward(ids, saved);
                result = vocabulary_parallel_cross_entropy(
                    *tp, logits, next, task.sizes.vocabulary);
            }
            {
                const PhaseScope phase(device, Phase::backward);
                gpt->backward(result.gradient, saved);
                tp->complete_gradients(*gpt);
            }
            rank.keep_value("loss", device.peek(result.loss).at(0));
            if (step == 0) keep(rank, *gpt, "grad/", &Parameter::gradient);
            const PhaseScope phase(device, Phase::update);
            optimizer.step();
            if (progress && rank.index() == 0) progress->advance(step + 1);
        }
        keep(rank, *gpt, "", &Parameter::value);
    });
}
// lesson: end

WholeParameters whole_gpt(const GptTask& task, int ranks, Regions regions) {
    return {ranks, [&](Rank& rank, const WholeParameters::Show& show) {
                const auto tp =
                    make_regions(regions, rank.device(), rank.world());
                show(*make_parallel_gpt({rank.device(), DType::f32, 0, ""},
                                        *tp, task.sizes));
            }};
}

void record_gpt_inputs(Record& record, const GptTask& task) {
    const auto keep = [&](const std::string& name, Shape shape,
                          const auto& values) {
        record.inputs.insert_or_assign(
            "gpt/" + name,
            HostTensor::of(shape, std::vector<std::int32_t>(values.begin(),
                                                            values.end())));
    };
    keep("ids",
         Shape::flat(static_cast<std::int64_t>(task.text.ids.size())),
         task.text.ids);
    keep("vocabulary", Shape::flat(task.sizes.vocabulary),
         task.text.vocabulary);
    keep("starts", Shape{task.steps, task.batch}, task.starts);
}

}  // namespace lockstep::lessons
