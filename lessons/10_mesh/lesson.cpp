#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "lessons/runner/gpt_task.hpp"
#include "lessons/runner/rounding.hpp"
#include "src/core/require.hpp"
#include "src/cost/products_and_messages.hpp"
#include "src/device/ledger.hpp"
#include "src/nn/flash_attention.hpp"
#include "src/nn/part.hpp"
#include "src/os/environment.hpp"
#include "src/parallel/bucketed_data_parallel.hpp"
#include "src/parallel/checkpoint.hpp"
#include "src/parallel/placement.hpp"
#include "src/pipeline/gpt_on_mesh.hpp"
#include "src/pipeline/mesh_traffic.hpp"

namespace lockstep::lessons {

namespace {

/// The sizes of the lesson's mesh.
struct MeshSizes {
    int dp = 1, pp = 1, cp = 1, tp = 1;

    int ranks() const { return dp * pp * cp * tp; }
    /// Returns the axes in the lesson's order, the slowest first.
    std::vector<MeshShape::Axis> axes() const {
        return {{"dp", dp}, {"pp", pp}, {"cp", cp}, {"tp", tp}};
    }
    /// Micro-batches of a replica in a step. 2 pp micro-batches keep the pipeline busy.
    int micro_batches() const { return 2 * pp; }
};

/// Returns the sizes from the settings dp, pp, cp and tp. The axes that are not set share
/// the remaining ranks: they get factors of 2 in turn, and dp gets an odd factor. Throws
/// UsageError if the product of the sizes cannot be the number of ranks.
MeshSizes mesh_sizes(const LessonOptions& options) {
    MeshSizes sizes;
    // In the order in which axes get a factor of 2.
    const std::vector<std::pair<std::string, int*>> axes{
        {"tp", &sizes.tp}, {"pp", &sizes.pp}, {"dp", &sizes.dp}, {"cp", &sizes.cp}};
    std::vector<int*> free;
    for (const auto& [name, size] : axes)
        if (options.values.has(name))
            *size = static_cast<int>(options.values.integer(name));
        else
            free.push_back(size);
    const int ranks = options.ranks.value_or(16);
    int left = ranks % sizes.ranks() == 0 ? ranks / sizes.ranks() : 0;
    for (std::size_t turn = 0; left > 0 && left % 2 == 0 && !free.empty(); ++turn) {
        *free[turn % free.size()] *= 2;
        left /= 2;
    }
    if (left > 1 && !options.values.has("dp")) sizes.dp *= std::exchange(left, 1);
    std::vector<std::string> set;
    for (const auto& [name, size] : axes)
        if (options.values.has(name)) set.push_back(fmt::format("{}={}", name, *size));
    require(left == 1,
            "--set {}: the product of these sizes must {} the number of ranks, {}{}",
            fmt::join(set, ", "), free.empty() ? "equal" : "divide", ranks,
            options.gpus_hint());
    return sizes;
}

/// Makes a GPT that a mesh of these sizes can shard. Two heads of queries share a head of
/// keys and values, and the table is tied to the output head.
std::shared_ptr<const GptTask> make_mesh_task(const LessonOptions& options,
                                              const MeshSizes& sizes) {
    const std::int64_t micro_batches = std::int64_t{sizes.dp} * sizes.micro_batches();
    const std::int64_t batch =
        options.values.integer("batch", least_multiple(micro_batches, 8));
    require_shared_out("batch", batch, micro_batches,
                       fmt::format("{} micro-batches", micro_batches));
    const std::int64_t stretches = std::int64_t{2} * sizes.cp * sizes.tp;
    return make_gpt_task(options, batch, [&](std::int64_t vocabulary) {
        GptSizes gpt;
        gpt.vocabulary = vocabulary;
        gpt.context = options.values.integer("context", least_multiple(stretches, 32));
        gpt.layers = options.values.integer("layers", std::max(4, sizes.pp));
        gpt.tied = true;
        BlockSizes& block = gpt.block;
        block.kv_heads = least_multiple(sizes.tp, 2);
        block.heads = 2 * block.kv_heads;
        block.hidden = options.values.integer("hidden", 8 * block.heads);
        require_shared_out("context", gpt.context, stretches,
                           fmt::format("{} stretches (two for each of the {} ranks of "
                                       "cp, each cut by the {} ranks of tp)",
                                       stretches, sizes.cp, sizes.tp));
        require_shared_out("hidden", block.hidden, block.heads,
                           fmt::format("{} heads", block.heads));
        return gpt;
    });
}

/// Returns the lesson's way to shard a GPT over `axes`: sequence parallelism, ring
/// attention in zigzag order, 1F1B, and ZeRO's stage 1 over all replicas.
MeshOptions mesh_options(std::vector<MeshShape::Axis> axes, int micro_batches) {
    MeshOptions options;
    options.axes = std::move(axes);
    options.micro_batches = micro_batches;
    options.sequence = true;
    options.zero = 1;
    return options;
}

constexpr int kMostRanks = 16;

/// The state that the lesson's experiments share.
struct MeshLesson final : Lesson {
    /// Throws UsageError if the lesson cannot run with these options.
    MeshLesson(const LessonOptions& options, Record& record)
        : Lesson(options, record),
          sizes(mesh_sizes(options)),
          task(make_mesh_task(options, sizes)),
          plan(std::make_unique<MeshPlan>(
              task->sizes, mesh_options(sizes.axes(), sizes.micro_batches()))) {
        for (const MeshShape::Axis& axis : sizes.axes())
            note(axis.name, axis.size);
        note("micro_batches", plan->micro_batches());
        note_task(*this, *task,
                  {"layers", "heads", "kv_heads", "hidden", "context", "batch"});
    }

    MeshSizes sizes;
    std::shared_ptr<const GptTask> task;
    std::unique_ptr<const MeshPlan> plan;
};

/// Writes a range as "0–3", or as "2" if it has only one number.
std::string range_text(std::int64_t first, std::int64_t count) {
    return count == 1 ? std::to_string(first)
                      : fmt::format("{}–{}", first, first + count - 1);
}

/// Writes axes as "dp 2 x tp 4", without the axes that have one rank.
std::string axes_text(const std::vector<MeshShape::Axis>& axes) {
    std::vector<MeshShape::Axis> longer;
    std::ranges::copy_if(axes, std::back_inserter(longer),
                         [](const MeshShape::Axis& axis) { return axis.size > 1; });
    return MeshShape(longer).text();
}

/// Returns the largest difference of two curves that end with the same step.
double widest_gap(const std::vector<double>& one, const std::vector<double>& many) {
    double widest = 0;
    for (std::size_t i = 1; i <= std::min(one.size(), many.size()); ++i) {
        const double here = std::abs(one[one.size() - i] - many[many.size() - i]);
        if (std::isnan(here)) return here;
        widest = std::max(widest, here);
    }
    return widest;
}

/// Returns the report of rank 0's pipeline only. The other pipelines did the same.
RunReport of_one_pipeline(RunReport report, const MeshShape& mesh) {
    const std::vector<int> line = mesh.line(0, "pp");
    const auto is_other = [&](int rank) { return !std::ranges::count(line, rank); };
    const auto has_another = [&](const auto& event) { return is_other(event.rank); };
    std::erase_if(report.trace, has_another);
    std::erase_if(report.memory_trace, has_another);
    std::erase_if(report.flows, [&](const TraceFlow& flow) {
        return is_other(flow.source_rank) || is_other(flow.destination_rank);
    });
    return report;
}

/// Writes ranks as "0 8".
std::string ranks_text(const std::vector<int>& ranks) {
    return fmt::format("{}", fmt::join(ranks, " "));
}

/// The beginning and the end of a training, and what it saves on the way.
struct MeshTraining {
    /// The folder for checkpoints. A checkpoint is saved after every `save_every` steps.
    std::filesystem::path folder{};
    int save_every = 0;
    /// If set, training begins with the newest checkpoint of this folder.
    std::filesystem::path resume{};
    /// If set, this rank is lost before step `lost_at`.
    std::optional<int> lost_rank{};
    int lost_at = 0;
};

/// Returns the micro-batches of a replica at a step.
std::vector<MicroBatch> own_batches(const GptTask& task, GptOnMesh& gpt, int step) {
    const MeshPlan& plan = gpt.plan();
    const int own = plan.options().micro_batches;
    const std::int64_t sequences = task.batch / plan.micro_batches();
    std::vector<MicroBatch> batches;
    batches.reserve(static_cast<std::size_t>(own));
    for (int i = 0; i < own; ++i) {
        const HostTokens tokens =
            tokens_of(task, step, (gpt.replica() * own + i) * sequences, sequences);
        batches.push_back(gpt.micro_batch(tokens.ids, tokens.next));
    }
    return batches;
}

void keep_norm(Rank& rank, const std::vector<Parameter*>& updated) {
    const Tensor squares = squared_gradient_norm(rank.device(), rank.world(), updated);
    if (rank.index() == 0)
        rank.keep_value("norm", std::sqrt(rank.device().peek(squares).at(0)));
}

/// Trains on `cluster`, which has the plan's ranks. Keeps what train() keeps, and the
/// norm of each step's gradients in rank 0's series "norm".
RunReport train_on_mesh(Cluster& cluster, const GptTask& task, const MeshPlan& plan,
                        const Advance& advance = {}, const MeshTraining& training = {}) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        GptOnMesh gpt(rank, plan, task.dtype, task.seed);
        const auto optimizer = make_optimizer<Sgd>(gpt.sync().shards(), task.optimizer());
        const TrainingState state(gpt.sync(), optimizer.get());
        int first = 0;
        if (!training.resume.empty())
            first = static_cast<int>(load_checkpoint(
                device, rank.world(), *latest_checkpoint(training.resume), state));
        const auto step = [&](int i) {
            const int at = first + i;
            if (rank.index() == training.lost_rank && at == training.lost_at)
                throw std::runtime_error("device is lost");
            Tensor loss = gpt.step(own_batches(task, gpt, at), *optimizer);
            keep_norm(rank, gpt.sync().shards());
            if (training.save_every > 0 && (at + 1) % training.save_every == 0)
                save_checkpoint(device, rank.world(), training.folder, at + 1, state);
            return loss;
        };
        train(rank, {gpt.parameters(), gpt.sync().shards()}, task.steps - first, step,
              advance);
    });
}

/// Trains on one device with the same micro-batches in a step, without a mesh's code.
/// Keeps what train_on_mesh() keeps.
RunReport train_alone(Cluster& cluster, const GptTask& task, int micro_batches,
                      const Advance& advance = {}) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt(task.init(device), task.sizes);
        const auto batches = [&](int step) {
            return upload_batches(device, task, step, 0, micro_batches, micro_batches);
        };
        const auto note_norm = [&](Tensor loss) {
            keep_norm(rank, gpt->parameters());
            return loss;
        };
        train_gpt(rank, *gpt, task, cross_entropy_loss, batches, advance, note_norm);
    });
}

/// Trains on a cluster of its own, shows its progress, and records the run as `variant`.
std::vector<double> train(MeshLesson& lesson, const std::string& variant,
                          const GptTask& task, const MeshPlan* plan) {
    const Advance advance = advancing(variant, task.steps);
    const RunReport report =
        plan ? train_on_mesh(*lesson.devices(plan->shape().ranks()), task, *plan, advance)
             : train_alone(*lesson.devices(1), task, lesson.plan->micro_batches(),
                           advance);
    record_training(lesson.record(), variant, plan == nullptr, losses_of(report), report);
    if (lesson.has_numbers()) {
        const std::vector<double>& norms = report.ranks[0].series.at("norm");
        lesson.record_output(
            variant + "/norm",
            HostTensor::of(Shape::flat(static_cast<std::int64_t>(norms.size())), norms));
    }
    if (plan) lesson.record_run(variant, report);
    return losses_of(report);
}

/// Returns a device's parts of the model and of the batch, one line each: "heads 0–1".
std::vector<std::string> share_of(const MeshLesson& lesson, int rank) {
    const GptSizes& gpt = lesson.task->sizes;
    const MeshShape& shape = lesson.plan->shape();
    const int dp = shape.coordinate(rank, "dp"), pp = shape.coordinate(rank, "pp");
    const int cp = shape.coordinate(rank, "cp"), tp = shape.coordinate(rank, "tp");

    std::vector<std::string> share;
    const LayerRange& layers = lesson.plan->cut()[pp];
    const int first = std::max(layers.first - gpt.first_block(), 0);
    const int last =
        std::min<int>(layers.last - gpt.first_block(), static_cast<int>(gpt.layers));
    if (last > first) share.push_back("blocks " + range_text(first, last - first));
    if (pp == 0) share.emplace_back("the table");
    if (pp == lesson.sizes.pp - 1) share.emplace_back("the head");
    const std::int64_t heads = gpt.block.heads / lesson.sizes.tp;
    share.push_back("heads " + range_text(tp * heads, heads));
    const std::int64_t sequences = lesson.task->batch / lesson.sizes.dp;
    share.push_back("sequences " + range_text(dp * sequences, sequences));
    // In zigzag order, a device has two stretches of tokens, one from each half.
    const std::int64_t stretch = gpt.context / (std::int64_t{2} * lesson.sizes.cp);
    const int mirror = 2 * lesson.sizes.cp - 1 - cp;
    if (lesson.sizes.cp == 1) {
        share.push_back("tokens " + range_text(0, gpt.context));
    } else {
        share.push_back("tokens " + range_text(cp * stretch, stretch));
        share.push_back("tokens " + range_text(mirror * stretch, stretch));
    }
    return share;
}

/// Shows each device's parts of the model and of the batch.
void holds(MeshLesson& lesson, Findings& found) {
    const GptSizes& gpt = lesson.task->sizes;
    const MeshShape& shape = lesson.plan->shape();
    for (const MeshShape::Axis& axis : lesson.sizes.axes())
        found.give(axis.name, axis.size);
    found.give({"ranks"_is = shape.ranks(), "numbers"_is = lesson.has_numbers(),
                "layers"_is = gpt.layers, "heads"_is = gpt.block.heads,
                "key_heads"_is = gpt.block.kv_heads, "context"_is = gpt.context,
                "batch"_is = lesson.task->batch, "parameters"_is = gpt.parameters(),
                "micro_batches"_is = lesson.plan->options().micro_batches});

    const RunReport report =
        make_shapes_only_cluster(shape.ranks())->run([&](Rank& rank) {
            const GptOnMesh made(rank, *lesson.plan, lesson.dtype(),
                                 lesson.options().seed);
            for (const Parameter* parameter : made.parameters())
                rank.keep_value("numbers",
                                static_cast<double>(parameter->shape().elements()));
        });
    // Nodes come in a later step of the lesson; here all devices are in one node.
    MeshPicture picture = MeshPicture::of(shape, shape.ranks());
    std::int64_t held = 0;
    for (int rank = 0; rank < shape.ranks(); ++rank) {
        const auto& numbers = report.ranks[rank].series.at("numbers");
        const auto own = static_cast<std::int64_t>(
            std::accumulate(numbers.begin(), numbers.end(), 0.0));
        picture.labels.push_back(share_of(lesson, rank));
        picture.labels.back().push_back("holds " +
                                        text_of(Figure::count(own), Language::english));
        held += own;
    }
    found.mesh("shares", picture);
    found.give({"table_tokens"_is = gpt.vocabulary,
                "table_rows"_is = least_multiple(lesson.sizes.tp, gpt.vocabulary),
                "copies"_is = lesson.sizes.dp * lesson.sizes.cp,
                "copies_tensor"_is = lesson.sizes.ranks() / lesson.sizes.tp,
                "copies_replicas"_is = lesson.sizes.dp});
    found.equal("held", held, parameters_on_mesh(*lesson.plan));
}

/// Compares training on the mesh with training on one device.
void same(MeshLesson& lesson, Findings& found) {
    record_gpt_inputs(lesson.record(), *lesson.task);
    const std::vector<double> alone = train(lesson, "alone", *lesson.task, nullptr);
    const std::vector<double> mesh =
        train(lesson, "mesh", *lesson.task, lesson.plan.get());
    found.give("steps", lesson.task->steps);
    if (!lesson.has_numbers()) {
        for (const char* name : {"same_losses", "same_norms", "same_values"})
            found.not_compared(name);
        return;
    }
    const auto& outputs = lesson.record().outputs;
    const auto gap = [&](const std::string& name) {
        return relative_difference(outputs.at("mesh/" + name),
                                   outputs.at("alone/" + name));
    };
    const HostTensor &one = outputs.at("alone/norm"), &many = outputs.at("mesh/norm");
    for (const std::size_t step : shown_steps(alone.size())) {
        const auto at = static_cast<std::int64_t>(step);
        found.row("curves",
                  {"step"_is = step + 1, "alone"_is = Figure::decimals(alone[step], 4),
                   "mesh"_is = Figure::decimals(mesh[step], 4),
                   "alone_norm"_is = Figure::decimals(one.at(at), 4),
                   "mesh_norm"_is = Figure::decimals(many.at(at), 4)});
    }
    double values = 0;
    for (const auto& [name, tensor] : outputs)
        if (name.starts_with("alone/") && tensor.dtype() == lesson.dtype() &&
            !name.ends_with("/loss") && !name.ends_with("/norm"))
            values = std::max(values, gap(name.substr(6)));
    const int stores =
        block_stores(lesson.sizes.tp) * static_cast<int>(lesson.task->sizes.layers);
    const DType dtype = lesson.dtype();
    lesson.values_at_most(found, "same_losses", widest_gap(alone, mesh),
                          loss_bound(dtype, stores, alone));
    lesson.values_at_most(found, "same_norms", gap("norm"),
                          RoundingBound{1e-3, 1e-11}.value(dtype, stores));
    lesson.values_at_most(found, "same_values", values,
                          RoundingBound{1e-2, 1e-10}.value(dtype, stores));
}

/// Lets each rank read sequences by its rank in the world, which is a mistake.
void read_by_rank(const MeshLesson& lesson, Findings& found) {
    found.give("has_reading", lesson.sizes.tp > 1 && lesson.has_numbers());
    if (lesson.sizes.tp == 1 || !lesson.has_numbers()) return;
    LessonOptions here = lesson.options();
    here.backend = "sim";
    here.check = sim::CheckLevel::full;
    const std::int64_t sequences = lesson.task->batch / lesson.plan->micro_batches();
    try {
        make_cluster(here, lesson.sizes.ranks())->run([&](Rank& rank) {
            GptOnMesh gpt(rank, *lesson.plan, lesson.dtype(), lesson.options().seed);
            const std::int64_t first = rank.index() * sequences % lesson.task->batch;
            const HostTokens tokens = tokens_of(*lesson.task, 0, first, sequences);
            gpt.micro_batch(tokens.ids, tokens.next);
        });
    } catch (const FaultError& fault) {
        found.give("read_by_rank", fault.diagnosis().sentence);
    }
}

/// Asks for norms over too few of the mesh's ranks, and shows the error.
void refuse_other_norms(const MeshLesson& lesson, Findings& found) {
    found.give("has_planes", lesson.sizes.dp * lesson.sizes.cp > 1);
    if (lesson.sizes.dp * lesson.sizes.cp == 1) return;
    std::string sentence;
    make_shapes_only_cluster(lesson.sizes.ranks())->run([&](Rank& rank) {
        GptOnMesh gpt(rank, *lesson.plan, lesson.dtype(), lesson.options().seed);
        std::vector<MicroBatch> batches;
        const Tensor ids =
            rank.device().empty({lesson.task->length() / lesson.sizes.cp,
                                 lesson.task->batch / lesson.plan->micro_batches()},
                                DType::i32);
        batches.assign(static_cast<std::size_t>(lesson.plan->options().micro_batches),
                       {ids, ids, lesson.plan->weight()});
        gpt.gradients(batches);
        try {
            squared_gradient_norm(rank.device(), gpt.mesh().plane({"pp", "tp"}),
                                  gpt.sync().shards());
        } catch (const UsageError& error) {
            if (rank.index() == 0) sentence = error.what();
        }
    });
    // Cuts off this file's name and line, which are of no use on the page.
    found.give("refused_norm", sentence.substr(sentence.find("the gradient norm")));
}

constexpr std::int64_t kDropRows = 4, kDropColumns = 8;

/// Writes 1 for each element of a row that dropout keeps: "1011 0010".
std::string mask_text(const HostTensor& mask, std::int64_t row) {
    std::string text;
    for (std::int64_t j = 0; j < kDropColumns; ++j)
        text += fmt::format("{}{}", j == kDropColumns / 2 ? " " : "",
                            mask.at(row * kDropColumns + j) != 0 ? 1 : 0);
    return text;
}

/// Returns a tensor of ones after dropout. `part` is its place in the whole tensor, which
/// selects the stream's numbers.
HostTensor dropped(Device& device, const Shape& shape, const RandomStream& stream,
                   const RandomPart& part) {
    const Tensor ones = device.empty(shape, DType::f32);
    device.fill(ones, 1);
    return device.download(device.dropout(ones, 0.5, stream, part));
}

/// Applies dropout to one matrix: on one device, on four devices by place, on four
/// devices with different seeds, and on four with the same seed.
void drop_by_place(const MeshLesson& lesson, Findings& found) {
    const RandomStream stream(lesson.options().seed, "dropout");
    HostTensor whole({kDropRows, kDropColumns}, DType::f32);
    const RunReport report = lesson.virtual_devices(4)->run([&](Rank& rank) {
        if (!rank.device().has_numbers()) return;
        const Mesh mesh(rank.world(), {{"dp", 2}, {"tp", 2}});
        constexpr std::int64_t kRows = kDropRows / 2, kColumns = kDropColumns / 2;
        const std::int64_t row = mesh.coordinate("dp") * kRows;
        const std::int64_t column = mesh.coordinate("tp") * kColumns;
        const Part part{
            {kDropRows, kDropColumns}, {kRows, kColumns}, {{0, row, kRows}}, column};
        const auto keep = [&](const std::string& name, const HostTensor& mask) {
            rank.keep(name, rank.device().upload(mask), part);
        };
        keep("by place", dropped(rank.device(), {kRows, kColumns}, stream,
                                 {row * kDropColumns + column, kDropColumns}));
        const RandomStream own(
            lesson.options().seed + 1 + static_cast<std::uint64_t>(rank.index()),
            "dropout");
        keep("own seeds", dropped(rank.device(), {kRows, kColumns}, own, {0, kColumns}));
        keep("same seeds",
             dropped(rank.device(), {kRows, kColumns}, stream, {0, kColumns}));
        if (rank.index() == 0)
            rank.keep("whole", rank.device().upload(dropped(rank.device(),
                                                            {kDropRows, kDropColumns},
                                                            stream, {0, kDropColumns})));
    });
    if (!lesson.has_numbers()) return found.not_compared("same_mask");
    const HostTensor one = report.ranks[0].kept.at("whole");
    const HostTensor places = report.whole("by place"), own = report.whole("own seeds");
    const HostTensor same = report.whole("same seeds");
    std::int64_t differing = 0;
    for (std::int64_t i = 0; i < one.elements(); ++i)
        differing += one.at(i) != places.at(i);
    for (std::int64_t row = 0; row < kDropRows; ++row) {
        found.row("masks",
                  {"one"_is = mask_text(one, row), "places"_is = mask_text(places, row),
                   "own"_is = mask_text(own, row), "same"_is = mask_text(same, row)});
    }
    lesson.values_equal(found, "same_mask", differing, 0);
}

/// Shows which loss, norm and random numbers belong to which device.
void dealt(MeshLesson& lesson, Findings& found) {
    const int all = lesson.plan->micro_batches();
    found.give({"all_micro_batches"_is = all, "weight_under"_is = all * lesson.sizes.cp,
                "own_micro_batches"_is = lesson.plan->options().micro_batches,
                "losses"_is = lesson.sizes.dp * lesson.sizes.cp,
                "losses_tensor"_is = lesson.sizes.dp * lesson.sizes.cp * lesson.sizes.tp,
                "losses_each"_is = all * lesson.sizes.cp});
    read_by_rank(lesson, found);
    refuse_other_norms(lesson, found);
    drop_by_place(lesson, found);
}

/// Counts the bytes of each axis.
void messages(MeshLesson& lesson, Findings& found) {
    const MicroBatchShape shape{lesson.task->length(),
                                lesson.task->batch / lesson.plan->micro_batches(),
                                lesson.dtype()};
    const auto step = [&](const MeshPlan& plan, const MicroBatchShape& micro_shape,
                          bool trace = false) {
        const auto cluster = make_shapes_only_cluster(plan.shape().ranks(),
                                                      products_and_messages(), trace);
        return cluster->run([&](Rank& rank) {
            GptOnMesh gpt(rank, plan, micro_shape.dtype, lesson.options().seed);
            const auto optimizer =
                make_optimizer<Sgd>(gpt.sync().shards(), lesson.task->optimizer());
            const Tensor ids = rank.device().empty(
                {micro_shape.length / plan.size("cp"), micro_shape.batch}, DType::i32);
            const std::vector<MicroBatch> batches(
                static_cast<std::size_t>(plan.options().micro_batches),
                MicroBatch{ids, ids, plan.weight()});
            gpt.step(batches, *optimizer);
        });
    };
    const MeshTraffic counted = mesh_traffic(step(*lesson.plan, shape));
    // ZeRO may pad its buckets, so the formula is compared with replicas without ZeRO.
    MeshOptions options = lesson.plan->options();
    options.zero = 0;
    const MeshPlan plain(lesson.task->sizes, options);
    const MeshTraffic formula = mesh_traffic(plain, shape);
    options.sync = [](Device& device, Mesh& mesh, Sequential& model) {
        return std::make_unique<BucketedDataParallel>(
            device, mesh.plane(replica_axes(mesh.shape())), model.parameters(),
            BucketOptions{.broadcast = false, .rebuild = false});
    };
    const RunReport traced = step(MeshPlan(lesson.task->sizes, options), shape, true);
    found.timeline("pipeline_step", of_one_pipeline(traced, lesson.plan->shape()));
    lesson.record_run("step", traced);
    const MeshTraffic unshared = mesh_traffic(traced);
    MicroBatchShape twice = shape;
    twice.batch *= 2;
    const MeshTraffic larger = mesh_traffic(plain, twice);
    const auto row = [&](const char* axis, int size, std::int64_t MeshTraffic::*bytes) {
        found.row("axes", {"axis"_is = axis, "size"_is = size,
                           "formula"_is = Figure::bytes(formula.*bytes),
                           "counted"_is = Figure::bytes(unshared.*bytes),
                           "shared"_is = Figure::bytes(counted.*bytes)});
        found.equal(std::string(axis) + "_bytes", Figure::bytes(unshared.*bytes),
                    formula.*bytes);
    };
    row("tp", lesson.sizes.tp, &MeshTraffic::tp);
    row("cp", lesson.sizes.cp, &MeshTraffic::cp);
    row("pp", lesson.sizes.pp, &MeshTraffic::pp);
    row("replicas", lesson.sizes.dp * lesson.sizes.cp, &MeshTraffic::replicas);
    row("tied", lesson.sizes.pp > 1 ? 2 : 1, &MeshTraffic::tied);
    found.give("shards", lesson.sizes.dp * lesson.sizes.cp);
    const auto times = [&](std::int64_t MeshTraffic::*bytes) {
        return Figure::count(formula.*bytes == 0 ? 0 : larger.*bytes / formula.*bytes);
    };
    found.give({"ratio_answer"_is = times(&MeshTraffic::replicas),
                "ratio_all"_is = times(&MeshTraffic::pp)});
}

/// One step to measure, by shapes only: bf16 with masters in f32, AdamW, and gradients
/// clipped by their norm over all devices.
struct MeshStep {
    GptSizes sizes;
    MeshOptions options;
    MicroBatchShape shape{0, 1, DType::bf16};
    ClusterSpec spec;
};

/// The cost of one step, by shapes only: its time, its report and its memory.
/// measure_mesh_step() throws OutOfMemoryError if a device is full.
struct MeasuredMeshStep {
    Picoseconds time = 0;
    RunReport report;  ///< of one step

    /// The maximum over all devices.
    std::int64_t state = 0;        ///< values, gradients and the optimizer's state
    std::int64_t activations = 0;  ///< what forward keeps for backward
    std::int64_t peak = 0;
};

constexpr double kMostNorm = 1.0;

RunReport run_steps(const MeshStep& step, const MeshPlan& plan, int steps, bool trace) {
    sim::ClusterOptions options;
    options.ranks = plan.shape().ranks();
    options.spec = step.spec;
    options.numbers = false;
    options.trace = trace;
    options.check = sim::CheckLevel::cheap;
    return sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        GptOnMesh gpt(rank, plan, step.shape.dtype, 0);
        const auto optimizer = make_optimizer<AdamW>(gpt.sync().shards(), AdamWOptions{});
        const Tensor ids = device.empty(
            {step.shape.length / plan.size("cp"), step.shape.batch}, DType::i32);
        const std::vector<MicroBatch> batches(
            static_cast<std::size_t>(plan.options().micro_batches),
            MicroBatch{ids, ids, plan.weight()});
        for (int i = 0; i < steps; ++i)
            gpt.step(batches, *optimizer, kMostNorm);
    });
}

MeasuredMeshStep measure_mesh_step(const MeshStep& step, bool trace = false) {
    const MeshPlan plan(step.sizes, step.options);
    MeasuredMeshStep measured;
    measured.report = run_steps(step, plan, 1, trace);
    measured.time = measured.report.makespan();
    for (const RankReport& rank : measured.report.ranks) {
        const MemoryReport& memory = rank.memory;
        measured.state =
            std::max(measured.state, memory.peak_of(MemoryCategory::parameters) +
                                         memory.peak_of(MemoryCategory::gradients) +
                                         memory.peak_of(MemoryCategory::optimizer));
        measured.activations =
            std::max(measured.activations, memory.peak_of(MemoryCategory::activations));
        measured.peak = std::max(measured.peak, memory.peak);
    }
    return measured;
}

/// Returns the measured step, or nothing if it does not fit.
std::optional<MeasuredMeshStep> measure_if_it_fits(const MeshStep& step) {
    try {
        return measure_mesh_step(step);
    } catch (const OutOfMemoryError&) {
        return std::nullopt;
    }
}

/// Returns the bytes that all devices together send between nodes.
std::int64_t sent_between_nodes(const RunReport& report) {
    std::int64_t bytes = 0;
    for (const RankReport& rank : report.ranks)
        for (const Traffic& traffic : rank.traffic)
            if (traffic.between_nodes) bytes += traffic.bytes_sent;
    return bytes;
}

/// Returns the sizes of a GPT that is only measured: 51,200 words and a tied table.
GptSizes measured_gpt(std::int64_t layers, std::int64_t hidden, std::int64_t context) {
    GptSizes sizes;
    sizes.vocabulary = 51'200;
    sizes.context = context;
    sizes.layers = layers;
    sizes.block.hidden = hidden;
    sizes.block.heads = hidden / 128;
    sizes.tied = true;
    return sizes;
}

/// Returns a step on `axes`, with one sequence in a micro-batch. Devices that have whole
/// sequences use FlashAttention.
MeshStep measured_step(const GptSizes& sizes, const std::vector<MeshShape::Axis>& axes,
                       std::int64_t batch, const ClusterSpec& spec) {
    int replicas = 1;
    for (const MeshShape::Axis& axis : axes)
        if (axis.name == "dp") replicas = axis.size;
    MeshStep step;
    step.sizes = sizes;
    step.options = mesh_options(axes, static_cast<int>(batch / replicas));
    step.options.kit.core = [](Device& device, const AttentionSizes& attention) {
        return std::make_unique<FlashAttention>(device, attention);
    };
    step.shape.length = sizes.context;
    step.spec = spec;
    return step;
}

ClusterSpec h100_nodes_of(int devices) {
    ClusterSpec spec = load_cluster("h100-data-sheet");
    spec.devices_per_node = devices;
    return spec;
}

constexpr std::int64_t kBillion = 1'000'000'000;

Figure billions(std::int64_t parameters) {
    return Figure::decimals(static_cast<double>(parameters) / kBillion, 1);
}

/// Measures the same mesh with other orders of its axes.
void nodes(Findings& found) {
    constexpr int kNode = 4;
    constexpr std::int64_t kBatch = 16;
    const GptSizes gpt = measured_gpt(8, 4096, 4096);
    found.give({"node"_is = kNode, "node_count"_is = 16 / kNode,
                "nodes_layers"_is = gpt.layers, "nodes_hidden"_is = gpt.block.hidden,
                "nodes_context"_is = gpt.context, "nodes_batch"_is = kBatch});
    const auto measure = [&](const std::vector<std::string>& order) {
        std::vector<MeshShape::Axis> axes;
        axes.reserve(order.size());
        for (const std::string& name : order)
            axes.push_back({name, 2});
        return measure_mesh_step(measured_step(gpt, axes, kBatch, h100_nodes_of(kNode)));
    };
    std::vector<std::string> order{"cp", "dp", "pp", "tp"};
    Picoseconds best = 0, worst = 0;
    std::vector<std::string> best_order;
    do {
        const Picoseconds time = measure(order).time;
        if (best_order.empty() || time < best) {
            best = time;
            best_order = order;
        }
        worst = std::max(worst, time);
    } while (std::ranges::next_permutation(order).found);

    Picoseconds usual = 0;
    for (const std::vector<std::string>& each :
         {std::vector<std::string>{"dp", "pp", "cp", "tp"},
          std::vector<std::string>{"tp", "dp", "pp", "cp"},
          std::vector<std::string>{"cp", "tp", "dp", "pp"},
          std::vector<std::string>{"pp", "cp", "tp", "dp"}}) {
        const MeasuredMeshStep step = measure(each);
        if (usual == 0) {
            usual = step.time;
            const MeshTraffic sent = mesh_traffic(step.report);
            found.give({"nodes_tp"_is = Figure::memory(sent.tp),
                        "nodes_cp"_is = Figure::memory(sent.cp),
                        "nodes_replicas"_is = Figure::memory(sent.replicas),
                        "nodes_pp"_is = Figure::memory(sent.pp)});
        }
        found.row("orders",
                  {"order"_is = fmt::format("{}", fmt::join(each, " ")),
                   "inside"_is = each[2] + ", " + each[3],
                   "between"_is = Figure::memory(sent_between_nodes(step.report)),
                   "all"_is = Figure::memory(step.report.bytes_sent()),
                   "time"_is = Figure::time(step.time)});
    }
    found.give({"best_order"_is = fmt::format("{}", fmt::join(best_order, " ")),
                "best_time"_is = Figure::time(best),
                "worst_time"_is = Figure::time(worst)});
    found.at_most("usual_is_best", ratio(usual, best), 1.0);
}

/// Shards one model along one axis after the other.
void prices(Findings& found) {
    constexpr std::int64_t kBatch = 16;
    const GptSizes gpt = measured_gpt(16, 2048, 4096);
    const ClusterSpec spec = h100_nodes_of(8);
    found.give({"prices_layers"_is = gpt.layers, "prices_hidden"_is = gpt.block.hidden,
                "prices_context"_is = gpt.context, "prices_batch"_is = kBatch,
                "prices_parameters"_is = billions(gpt.parameters())});
    Picoseconds alone = 0;
    // `saves_nothing` is the axis that saves the fewest activations on 16 devices.
    std::int64_t most = 0;
    std::string saves_nothing;
    const auto measure = [&](const char* axis, const std::vector<MeshShape::Axis>& axes) {
        const MeasuredMeshStep step =
            measure_mesh_step(measured_step(gpt, axes, kBatch, spec));
        if (alone == 0) alone = step.time;
        const int devices = static_cast<int>(step.report.ranks.size());
        Findings& row =
            found.row("prices", {"axis"_is = axis, "devices"_is = devices,
                                 "state"_is = Figure::memory(step.state),
                                 "activations"_is = Figure::memory(step.activations)});
        if (devices == kMostRanks && step.activations > most) {
            most = step.activations;
            saves_nothing = axis;
        }
        row.give({"peak"_is = Figure::memory(step.peak),
                  "time"_is = Figure::time(step.time),
                  "times"_is = Figure::decimals(ratio(alone, step.time), 1)});
    };
    measure("one", {});
    for (const char* axis : {"dp", "pp", "cp", "tp"})
        for (const int devices : {2, 8, 16})
            measure(axis, {{axis, devices}});
    measure("all", {{"dp", 2}, {"pp", 2}, {"cp", 2}, {"tp", 2}});
    found.give("saves_nothing", "along_" + saves_nothing);
}

/// Shows which devices have the table that is tied to the head.
void tied(MeshLesson& lesson, Findings& found) {
    const MeshShape& shape = lesson.plan->shape();
    found.give("several_stages", lesson.sizes.pp > 1);
    const std::int64_t rows =
        least_multiple(lesson.sizes.tp, lesson.task->sizes.vocabulary) / lesson.sizes.tp;
    found.give({"tied_rows"_is = rows, "vocabulary"_is = lesson.task->sizes.vocabulary});
    for (const int rank : shape.line(0, "tp")) {
        const std::vector<int> line = shape.line(rank, "pp");
        const std::int64_t first = shape.coordinate(line.front(), "tp") * rows;
        found.row("ties",
                  {"first"_is = line.front(), "last"_is = line.back(),
                   "tp"_is = shape.coordinate(line.front(), "tp"),
                   "rows"_is = range_text(
                       first, std::min(rows, lesson.task->sizes.vocabulary - first))});
    }
    found.give({"table_copies"_is =
                    (lesson.sizes.pp > 1 ? 2 : 1) * lesson.sizes.dp * lesson.sizes.cp,
                "table_copies_one_end"_is = lesson.sizes.dp * lesson.sizes.cp,
                "table_copies_ties"_is = 2});
    const std::string name = kGptTable;
    if (!lesson.has_numbers()) return found.not_compared("same_table");
    const auto& outputs = lesson.record().outputs;
    const double gap = relative_difference(outputs.at("mesh/grad/" + name),
                                           outputs.at("alone/grad/" + name));
    lesson.values_at_most(found, "same_table", gap,
                          RoundingBound{1e-4, 1e-12}.value(lesson.dtype(), 8));
}

/// A temporary folder. The destructor removes it.
class Scratch {
  public:
    Scratch() : path_(os::make_temporary_folder()) {}
    ~Scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

/// Returns a smaller mesh for the same model: the first axis with an even number of
/// ranks loses half of them.
std::vector<MeshShape::Axis> smaller(std::vector<MeshShape::Axis> axes) {
    const auto halved = std::ranges::find_if(
        axes, [](const MeshShape::Axis& axis) { return axis.size % 2 == 0; });
    if (halved != axes.end()) halved->size /= 2;
    return axes;
}

/// Continues on half of the devices, and compares with a training that lost no device.
void resume(MeshLesson& lesson, Findings& found, const GptTask& task,
            const std::filesystem::path& folder) {
    const MeshSizes all = lesson.sizes;
    const auto axes = smaller(all.axes());
    int replicas = 1, ranks = 1;
    for (const MeshShape::Axis& axis : axes) {
        if (axis.name == "dp") replicas = axis.size;
        ranks *= axis.size;
    }
    // A step keeps its number of micro-batches: fewer replicas get more of them each.
    const MeshPlan fewer(task.sizes,
                         mesh_options(axes, lesson.plan->micro_batches() / replicas));
    found.give({"before_axes"_is = axes_text(all.axes()),
                "after_axes"_is = axes_text(axes), "after_ranks"_is = ranks});
    MeshTraining resumed;
    resumed.resume = folder;
    const RunReport rest =
        train_on_mesh(*lesson.virtual_devices(ranks), task, fewer, {}, resumed);
    const RunReport whole =
        train_on_mesh(*lesson.virtual_devices(all.ranks()), task, *lesson.plan);
    const std::vector<double> late = losses_of(rest), losses = losses_of(whole);
    const int first = task.steps - static_cast<int>(late.size());
    // The device is lost in the step before the last, but not before the second step.
    const int lost_step = std::max(2, task.steps - 1);
    found.give({"from_step"_is = first + 1, "lost_step_before"_is = lost_step - 1,
                "steps_again"_is = lost_step - 1 - first});
    for (int step = 0; step < task.steps; ++step) {
        const auto at = static_cast<std::size_t>(step);
        const bool again = step >= first;
        found.row(
            "resumed",
            {"step"_is = step + 1, "whole"_is = Figure::decimals(losses[at], 5),
             "fewer"_is =
                 again ? fmt::format("{:.5f}", late[at - static_cast<std::size_t>(first)])
                       : "-"});
    }
    const int stores =
        block_stores(lesson.sizes.tp) * static_cast<int>(task.sizes.layers);
    lesson.values_at_most(found, "resumed_losses", widest_gap(losses, late),
                          loss_bound(lesson.dtype(), stores, losses));
    lesson.values_at_most(
        found, "resumed_values",
        difference(kept_under(rest, ""), kept_under(whole, "")).relative,
        RoundingBound{1e-3, 1e-11}.value(lesson.dtype(), stores));
}

/// Loses a device, and continues on fewer devices from a checkpoint.
void restart(MeshLesson& lesson, Findings& found) {
    GptTask task = *lesson.task;
    task.steps = std::min(6, lesson.task->steps);
    // The device is lost in step 2 or later, so a checkpoint was saved before.
    const int lost_step = std::max(2, task.steps - 1);
    const int every = lost_step > 3 ? 3 : 1;
    const int lost_rank = lesson.sizes.ranks() - 1;
    found.give({"enough_steps"_is = lesson.has_numbers(), "save_every"_is = every,
                "lost_rank"_is = lost_rank, "lost_step"_is = lost_step});
    if (!lesson.has_numbers()) {
        found.not_compared("resumed_values");
        found.not_compared("resumed_losses");
        return;
    }
    const Scratch scratch;
    MeshTraining training;
    training.folder = scratch.path();
    training.save_every = every;
    training.lost_rank = lost_rank;
    training.lost_at = lost_step - 1;
    try {
        train_on_mesh(*lesson.virtual_devices(lesson.sizes.ranks()), task, *lesson.plan,
                      {}, training);
    } catch (const std::exception& error) {
        found.give("lost", std::string(error.what()));
    }
    resume(lesson, found, task, scratch.path());
}

/// Parameters that have copies along the same axes.
struct Kind {
    std::int64_t numbers = 0;  ///< numbers on rank 0
    std::int64_t whole = 0;
    std::vector<std::string> axes;  ///< ranks along these axes hold the same parameters

    void add(const Parameter& parameter, const Mesh& mesh) {
        numbers += parameter.shape().elements();
        whole += parameter.part().whole.elements();
        axes.clear();
        for (const Placement& placement : parameter.placements)
            for (const char* axis : {"dp", "ep"})
                if (placement.has_terms() && mesh.spans(*placement.line, axis))
                    axes.emplace_back(axis);
    }
};

/// Returns two kinds of rank 0's parameters: those outside of experts, and the experts'.
std::pair<Kind, Kind> kinds_on(const MeshPlan& plan) {
    std::pair<Kind, Kind> kinds;
    make_shapes_only_cluster(plan.shape().ranks())->run([&](Rank& rank) {
        GptOnMesh gpt(rank, plan, DType::bf16, 0);
        if (rank.index() != 0) return;
        for (const Parameter* parameter : gpt.parameters()) {
            const bool is_experts =
                parameter->name().find(".experts.") != std::string::npos;
            (is_experts ? kinds.second : kinds.first).add(*parameter, gpt.mesh());
        }
    });
    return kinds;
}

/// Shards experts, and shows which ranks hold the same parameters.
void experts(MeshLesson& lesson, Findings& found) {
    int ep = 1;
    if (lesson.sizes.ranks() % 2 == 0) ep = 2;
    const int dp = lesson.sizes.ranks() / ep;
    found.give({"experts_dp"_is = dp, "experts_ep"_is = ep});
    const std::int64_t batch = least_multiple(std::int64_t{2} * dp * ep, 8);
    GptTask task = *make_gpt_task(lesson.options(), batch, [&](std::int64_t vocabulary) {
        GptSizes sizes = lesson.task->sizes;
        sizes.vocabulary = vocabulary;
        sizes.block.mlp = MlpKind::swiglu;
        sizes.block.bias = false;
        ExpertSizes& experts = sizes.block.experts;
        experts.count = std::int64_t{4} * ep;
        experts.inner = 16;
        experts.gate.chosen = 2;
        return sizes;
    });
    const ExpertSizes& experts = task.sizes.block.experts;
    found.give(
        {"experts_count"_is = experts.count, "experts_own"_is = experts.count / ep});
    MeshOptions spread = mesh_options({{"dp", dp}, {"ep", ep}}, 2);
    spread.zero = 0;
    const MeshPlan plan(task.sizes, spread);

    const auto [rest, of_experts] = kinds_on(plan);
    for (const auto& [name, kind] :
         {std::pair{"rest", &rest}, std::pair{"experts", &of_experts}}) {
        found.row("groups", {"what"_is = name, "whole"_is = kind->whole,
                             "numbers"_is = kind->numbers,
                             "ranks"_is = ranks_text(plan.shape().plane(0, kind->axes))});
    }
    found.give({"expert_copies"_is = dp, "expert_copies_all"_is = dp * ep});
    if (!lesson.has_numbers()) return found.not_compared("experts_losses");
    task.steps = std::min(task.steps, 5);
    const DType dtype = lesson.dtype();
    const std::vector<double> one =
        losses_of(train_alone(*lesson.virtual_devices(1), task, plan.micro_batches()));
    const std::vector<double> many = losses_of(
        train_on_mesh(*lesson.virtual_devices(plan.shape().ranks()), task, plan));
    lesson.values_at_most(
        found, "experts_losses", widest_gap(one, many),
        loss_bound(dtype, 12 * static_cast<int>(task.sizes.layers) + 4, one));
}

/// Measures a thousand devices, by shapes only.
void large(Findings& found) {
    constexpr std::int64_t kContext = 2048;
    const GptSizes gpt = measured_gpt(60, 10'240, kContext);
    constexpr int kTp = 8, kPp = 4;
    const ClusterSpec spec = load_cluster("a100");
    found.give({"large_parameters"_is = billions(gpt.parameters()),
                "large_layers"_is = gpt.layers, "large_hidden"_is = gpt.block.hidden,
                "large_tp"_is = kTp, "large_pp"_is = kPp});
    const auto step_of = [&](int dp, int micro_batches) {
        MeshStep step = measured_step(gpt, {{"dp", dp}, {"pp", kPp}, {"tp", kTp}},
                                      std::int64_t{dp} * micro_batches, spec);
        step.options.recompute = MeshOptions::Recompute::layers;
        return step;
    };
    // Narayanan et al. 2021, 2104.04473, equation 3, with recomputation.
    const auto paper_flops = [&](std::int64_t sequences) {
        const auto b = static_cast<double>(sequences), s = static_cast<double>(kContext);
        const auto l = static_cast<double>(gpt.layers);
        const auto h = static_cast<double>(gpt.block.hidden);
        const auto v = static_cast<double>(gpt.vocabulary);
        return 96 * b * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
    };
    for (const auto& [dp, micro_batches] : {std::pair{1, 4}, {1, 56}, {32, 4}}) {
        const MeasuredMeshStep step = measure_mesh_step(step_of(dp, micro_batches));
        const int devices = dp * kPp * kTp;
        double flops = 0;
        for (const RankReport& rank : step.report.ranks)
            flops += static_cast<double>(rank.flops);
        const double seconds = static_cast<double>(step.time) * 1e-12;
        found.row(
            "thousand",
            {"devices"_is = devices, "micro_batches"_is = micro_batches,
             "time"_is = Figure::time(step.time), "peak"_is = Figure::memory(step.peak),
             "state"_is = Figure::memory(step.state),
             "rate"_is = Figure::decimals(flops / seconds / devices / 1e12, 0)});
        const double formula = paper_flops(std::int64_t{dp} * micro_batches);
        if (dp == 1) continue;
        found.at_most("large_flops",
                      Figure::percent(100 * std::abs(1 - flops / formula), 2), 2);
        found.give("flops_less", Figure::percent(100 * (1 - flops / formula), 2));
    }
    constexpr int kPaperBatch = 1792;
    found.give({"paper_batch"_is = kPaperBatch,
                "paper_micro_batches"_is = kPaperBatch / 32, "paper_rate"_is = 140,
                "paper_peak"_is = 312});
}

/// A mesh, and its measured step if the step fits.
struct Tried {
    std::vector<MeshShape::Axis> axes;
    std::optional<MeasuredMeshStep> step;

    int size(const std::string& name) const {
        for (const MeshShape::Axis& axis : axes)
            if (axis.name == name) return axis.size;
        return 1;
    }
};

/// Returns all meshes of sixteen devices whose replicas divide the batch, fastest first.
std::vector<Tried> try_all(const GptSizes& gpt, std::int64_t batch,
                           const ClusterSpec& spec) {
    std::vector<Tried> all;
    for (int dp = 1; dp <= kMostRanks; dp *= 2)
        for (int pp = 1; dp * pp <= kMostRanks; pp *= 2)
            for (int cp = 1; dp * pp * cp <= kMostRanks; cp *= 2) {
                const int tp = kMostRanks / (dp * pp * cp);
                if (batch % dp != 0 || gpt.block.heads % tp != 0 ||
                    pp > gpt.layer_count())
                    continue;
                const std::vector<MeshShape::Axis> axes{
                    {"dp", dp}, {"pp", pp}, {"cp", cp}, {"tp", tp}};
                all.push_back(
                    {axes, measure_if_it_fits(measured_step(gpt, axes, batch, spec))});
            }
    std::ranges::stable_sort(all, [](const Tried& a, const Tried& b) {
        if (!a.step || !b.step) return a.step.has_value() && !b.step.has_value();
        return a.step->time < b.step->time;
    });
    return all;
}

/// Reports the time of the fastest mesh that has `ranks` ranks along the axis.
void give_fastest_with(Findings& found, const std::string& name, const char* axis,
                       int ranks, const std::vector<Tried>& by_time) {
    const auto fastest = std::ranges::find_if(
        by_time, [&](const Tried& tried) { return tried.size(axis) == ranks; });
    const std::string which = fmt::format("{}.{}_{}", name, axis, ranks);
    found.give(which, ranks);
    found.give(which + "_time", Figure::time(fastest->step->time));
}

/// Returns the smallest pp * tp (ranks that shard parameters) of the meshes that fit.
int least_sharing(const std::vector<Tried>& all) {
    int least = kMostRanks;
    for (const Tried& tried : all)
        if (tried.step) least = std::min(least, tried.size("pp") * tried.size("tp"));
    return least;
}

/// Runs all meshes for three models.
void choose(Findings& found) {
    struct Case {
        const char* name;
        GptSizes gpt;
        std::int64_t batch;
        const char* asked;  ///< the axis whose size readers predict; null: pp * tp
    };
    const ClusterSpec spec = h100_nodes_of(8);
    for (const Case& each : {Case{"large", measured_gpt(24, 8192, 2048), 8, nullptr},
                             Case{"long", measured_gpt(16, 2048, 131'072), 1, "cp"},
                             Case{"small", measured_gpt(8, 2048, 2048), 16, "dp"}}) {
        const std::string name = each.name;
        const std::vector<Tried> all = try_all(each.gpt, each.batch, spec);
        found.give(name,
                   {"parameters"_is = billions(each.gpt.parameters()),
                    "layers"_is = each.gpt.layers, "hidden"_is = each.gpt.block.hidden,
                    "context"_is = each.gpt.context, "batch"_is = each.batch,
                    "tried"_is = all.size()});
        const auto fitting = std::ranges::count_if(
            all, [](const Tried& tried) { return tried.step.has_value(); });
        found.give(name + ".fitting", fitting);
        constexpr std::size_t kShown = 5;
        const auto show = [&](const Tried& tried) {
            Findings& row = found.row(name);
            for (const MeshShape::Axis& axis : tried.axes)
                row.give("of_" + axis.name, axis.size);
            row.give({"time"_is = Figure::time(tried.step->time),
                      "peak"_is = Figure::memory(tried.step->peak)});
        };
        for (std::size_t i = 0; i < kShown && all[i].step; ++i)
            show(all[i]);
        show(all[static_cast<std::size_t>(fitting) - 1]);
        for (const char* axis : {"dp", "pp", "cp", "tp"})
            found.give(name + ".best_" + axis, all[0].size(axis));
        if (each.asked)
            for (const int ranks : {kMostRanks / 4, kMostRanks / 2, kMostRanks})
                give_fastest_with(found, name, each.asked, ranks, all);
        found.give(name, {"best_model"_is = all[0].size("pp") * all[0].size("tp"),
                          "least"_is = least_sharing(all), "all"_is = kMostRanks});
        // ZeRO: 4 bytes for a value and its gradient, 12 / dp for the optimizer's state.
        const double bytes = static_cast<double>(each.gpt.parameters()) * (4 + 12. / 16);
        found.give(name + ".state_of_one", Figure::decimals(bytes / 1e9, 0));
    }
}

}  // namespace

LessonEntry mesh_lesson() {
    LessonEntry entry;
    entry.slug = "mesh";
    entry.folder = "10_mesh";
    entry.default_ranks = kMostRanks;
    entry.most_ranks = kMostRanks;
    entry.settings = {
        // By default, an axis gets the ranks that the other axes leave.
        {"dp", "replicas with sequences of their own", Whole{1, kMostRanks}, "2 of 16"},
        {"pp", "stages with layers of their own", Whole{1, kMostRanks}, "2 of 16"},
        {"cp", "devices over which each sequence's tokens are sharded",
         Whole{1, kMostRanks}, "2 of 16"},
        {"tp", "devices with heads and columns of their own", Whole{1, kMostRanks},
         "2 of 16"},
        {"layers", "transformer blocks; if not set, the number of stages, but at least 4",
         Whole{1, 64}, "4"},
        {"hidden", "columns between layers; 8 a head", Whole{1, 1024}, "32"},
        {"context",
         "tokens of a sequence; if not set, the smallest multiple of 2 cp tp that is at "
         "least 32",
         Whole{1, 1024}, "32"},
        {"batch",
         "sequences of a step; if not set, the smallest multiple of 2 dp pp that is at "
         "least 8",
         Whole{1, 1024}, "8"},
        {"steps", "of training", Whole{2, 100'000, 20}},
        {"learning_rate", "of SGD with momentum 0.9", Real{0, 1e6, 0.1}},
    };
    entry.takes_text = true;
    entry.make = lesson_of<MeshLesson>({{"holds", holds},
                                        {"same", same},
                                        {"dealt", dealt},
                                        {"messages", messages},
                                        {"nodes", nodes},
                                        {"prices", prices},
                                        {"tied", tied},
                                        {"restart", restart},
                                        {"experts", experts},
                                        {"large", large},
                                        {"choose", choose}});
    return entry;
}

}  // namespace lockstep::lessons
