#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lessons/01_gradient_accumulation/language_lesson.hpp"
#include "lessons/02_data_parallel/measured_step.hpp"
#include "src/cost/products_and_messages.hpp"
#include "src/cost/virtual_time.hpp"
#include "src/device/ledger.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/offloaded_activations.hpp"
#include "src/nn/recompute.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/fully_sharded.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/zero_1.hpp"
#include "src/parallel/zero_2.hpp"
#include "src/parallel/zero_offload.hpp"

namespace lockstep::lessons {

namespace {

/// Layers without biases. Each layer is a bucket, or a unit. They are trained as large
/// models are: values and gradients in bf16, AdamW with f32 masters and moments. The
/// layers have no memory until a strategy allocates it.
struct Stack {
    int layers = 8;
    std::int64_t width = 512;
    std::int64_t rows = 512;  ///< rows of a micro-batch
    int micro_batches = 1;

    std::int64_t layer() const { return width * width; }
    std::int64_t parameters() const { return layers * layer(); }
    BucketSizes bucket() const { return {2 * layer(), 2 * layer()}; }
    MeasuredStep step() const;
};

/// GPTs of a family: n layers and 2 n heads of 128 columns, so the blocks have about 12 n
/// (256 n)² numbers. They have 50,257 words, and the head has its own table. Each device
/// has one sequence of 1,024 tokens. They are trained like a Stack.
struct FamilyGpt {
    /// The tensors that a block keeps for backward, on the device or on the host: all;
    /// all except those between attention's linear layers; or only its input.
    enum class Keeps { all, all_but_attention, input, all_on_host, input_on_host };

    int layers = 0;
    Keeps keeps = Keeps::all;

    std::int64_t parameters() const;
    MeasuredStep step() const;
};

std::unique_ptr<Optimizer> mixed_adamw(std::vector<Parameter*> parameters) {
    return make_optimizer<AdamW>(std::move(parameters), AdamWOptions{});
}

ParameterInit without_memory(Device& device, const std::string& name) {
    return {device, DType::bf16, 0, name, false};
}

/// Data parallelism in buckets: every device holds everything.
MakeStrategy replicas(const BucketSizes& sizes = {}) {
    return [=](Rank& rank, Module& model) {
        make_flat(rank.device(), model.parameters(), &Parameter::value);
        BucketOptions options;
        options.sizes = sizes;
        options.broadcast = options.rebuild = false;
        return in_buckets(options)(rank, model);
    };
}

MakeStrategy zero_1(const ZeroOptions& options = {}) {
    return synced_by<Zero1>(options);
}

MakeStrategy zero_2(const ZeroOptions& options = {}) {
    return synced_by<Zero2>(options);
}

MakeStrategy zero_offload(const ZeroOptions& options = {}, bool delayed = false) {
    return synced_by<ZeroOffload>(options, delayed);
}

MakeStrategy fully_sharded(const FullyShardedOptions& options = {}) {
    return [=](Rank& rank, Module& model) {
        declare_replicas_of(rank.world(), model);
        return std::make_unique<FullySharded>(rank.device(), rank.world(),
                                              dynamic_cast<Sequential&>(model), options);
    };
}

MeasuredStep Stack::step() const {
    const Stack stack = *this;
    return {[stack](Device& device) {
                auto model = std::make_unique<Sequential>();
                for (int layer = 0; layer < stack.layers; ++layer)
                    model->add<Linear>(without_memory(device, std::to_string(layer)),
                                       stack.width, stack.width, false);
                return model;
            },
            [stack](Device& device) {
                const Shape shape{stack.rows, stack.width};
                return MicroBatch{device.empty(shape, DType::bf16),
                                  device.empty(shape, DType::bf16)};
            },
            mean_squared_error, micro_batches, mixed_adamw};
}

constexpr std::int64_t kTokens = 1024;

GptSizes sizes_of(int layers) {
    constexpr std::int64_t kWidth = 256;
    return {50257, kTokens, layers, {layers * kWidth, std::int64_t{2} * layers}};
}

std::int64_t FamilyGpt::parameters() const {
    return sizes_of(layers).parameters();
}

MeasuredStep FamilyGpt::step() const {
    const GptSizes sizes = sizes_of(layers);
    MeasuredStep step{[sizes, keeps = keeps](Device& device) {
                          const GptKit kit = keeps == Keeps::all_but_attention
                                                 ? selective_recompute(GptKit{})
                                                 : GptKit{};
                          auto model = make_gpt(without_memory(device, ""), sizes, kit);
                          if (keeps == Keeps::input || keeps == Keeps::input_on_host)
                              recompute_blocks(*model, sizes);
                          return model;
                      },
                      [](Device& device) {
                          return MicroBatch{device.empty({kTokens, 1}, DType::i32),
                                            device.empty({kTokens, 1}, DType::i32)};
                      },
                      cross_entropy_loss, 1, mixed_adamw};
    if (keeps == Keeps::all_on_host || keeps == Keeps::input_on_host)
        step.around = [sizes](Device& device, Module& model) {
            const auto first = static_cast<std::size_t>(sizes.first_block());
            return std::make_shared<OffloadedActivations>(
                device, dynamic_cast<Sequential&>(model), first,
                first + static_cast<std::size_t>(sizes.layers));
        };
    return step;
}

/// Returns the bytes of values, gradients and the optimizer's state, each at its peak.
std::int64_t state_of(const RankReport& rank) {
    return rank.memory.peak_of(MemoryCategory::parameters) +
           rank.memory.peak_of(MemoryCategory::gradients) +
           rank.memory.peak_of(MemoryCategory::optimizer);
}

constexpr int kDevices = 8;
constexpr Stack kStack{};
constexpr double kPerParameter = 16;  // bytes of values, gradients, masters, moments

/// Returns a cluster with the classroom's links for up to 64 devices, whose
/// memory is unlimited.
ClusterSpec classroom() {
    ClusterSpec spec = load_cluster("classroom");
    spec.devices_per_node = 64;
    spec.memory_bytes = 0;
    spec.host.memory_bytes = 0;
    return spec;
}

/// A row of the tables: replicas, or one of the three stages.
struct Way {
    const char* name;
    MakeStrategy strategy;
};

std::vector<Way> ways(const BucketSizes& sizes) {
    return {{"replicas", replicas(sizes)},
            {"stage_1", zero_1({.sizes = sizes})},
            {"stage_2", zero_2({.sizes = sizes})},
            {"stage_3", fully_sharded()}};
    // The analyzer does not see that a std::function frees what it holds.
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)

/// Shows what the 16 bytes of each parameter are.
void bytes(LanguageLesson& lesson, Findings& found) {
    found.give({"parts"_is = lesson.parts(), "steps"_is = lesson.language()->steps,
                "parameters"_is = lesson.language()->sizes.parameters(),
                "stack_layers"_is = kStack.layers, "stack_width"_is = kStack.width,
                "psi"_is = kStack.parameters(), "devices"_is = kDevices});
    const RunReport report =
        measure(kStack.step(), kDevices, classroom(), replicas(kStack.bucket()));
    const RankReport& rank = report.ranks[0];
    const auto psi = static_cast<double>(kStack.parameters());
    for (const auto& [name, category, each] :
         {std::tuple{"values", MemoryCategory::parameters, 2.0},
          std::tuple{"gradients", MemoryCategory::gradients, 2.0},
          std::tuple{"optimizer", MemoryCategory::optimizer, 12.0}}) {
        found.row("sixteen", {"what"_is = name, "each"_is = Figure::count(each),
                              "held"_is = Figure::memory(rank.memory.peak_of(category))});
    }
    found.equal("sixteen_bytes", Figure::bytes(state_of(rank)), kPerParameter * psi);
    constexpr double kLarge = 7.5e9;
    found.give(
        {"large_state"_is =
             Figure::memory(static_cast<std::int64_t>(kPerParameter * kLarge)),
         "large_values"_is = Figure::memory(static_cast<std::int64_t>(4 * kLarge)),
         "large_moments"_is = Figure::memory(static_cast<std::int64_t>(12 * kLarge))});
}

/// Measures stage 1: the optimizer's state is sharded.
void stage_1(LanguageLesson& lesson, Findings& found) {
    lesson.train_and_check(found, "zero_1", zero_1({.sizes = {600, 200}}));

    const auto run = [](const MakeStrategy& strategy) {
        return measure(kStack.step(), kDevices, classroom(), strategy);
    };
    const RunReport whole = run(replicas(kStack.bucket()));
    const RunReport shared = run(zero_1({.sizes = kStack.bucket()}));
    const RunReport reduced = run(zero_1({.sizes = kStack.bucket(), .all_reduce = true}));
    for (const auto& [name, report] :
         {std::pair{"replicas", &whole}, std::pair{"stage_1", &shared},
          std::pair{"all_reduced", &reduced}}) {
        const RankReport& rank = report->ranks[0];
        found.row(
            "first",
            {"way"_is = name,
             "all_reduce"_is = Figure::memory(rank.bytes_sent_by("all_reduce")),
             "reduce_scatter"_is = Figure::memory(rank.bytes_sent_by("reduce_scatter")),
             "all_gather"_is = Figure::memory(rank.bytes_sent_by("all_gather")),
             "state"_is = Figure::memory(state_of(rank))});
    }
    found.equal("first_bytes", Figure::bytes(shared.ranks[0].bytes_sent()),
                whole.ranks[0].bytes_sent());
    const std::int64_t psi = kStack.parameters();
    const std::int64_t state = 4 * psi + 12 * psi / kDevices;
    found.give({"first_state"_is = Figure::memory(state),
                "first_forgot"_is = Figure::memory(16 * psi / kDevices),
                "first_all"_is = Figure::memory(16 * psi)});
    found.equal("first_memory", Figure::bytes(state_of(shared.ranks[0])), state);
}

/// Measures stage 2: gradients are sharded, too.
void stage_2(LanguageLesson& lesson, Findings& found) {
    lesson.train_and_check(found, "zero_2", zero_2({.sizes = {600, 200}}));

    const std::int64_t psi = kStack.parameters();
    const auto traced = [&](const std::string& name, const MakeStrategy& strategy) {
        RunReport report =
            measure(kStack.step(), kDevices, classroom(), strategy, 1, true);
        found.memory(name + "_memory", report);
        lesson.record_run(name, report);
        return report;
    };
    traced("stage_1", zero_1({.sizes = kStack.bucket()}));
    const RunReport second = traced("stage_2", zero_2({.sizes = kStack.bucket()}));
    const std::int64_t buckets = 2 * kStack.bucket().bytes;
    found.give("two_buckets", Figure::memory(buckets));
    const std::int64_t state = 2 * psi + 14 * psi / kDevices;
    found.give("second_state", Figure::memory(state));
    found.equal("second_memory", Figure::bytes(state_of(second.ranks[0])),
                state + buckets);
    for (const int micro_batches : {1, 2, 4}) {
        Stack stack = kStack;
        stack.micro_batches = micro_batches;
        Findings& row = found.row("accumulated", {"micro_batches"_is = micro_batches});
        for (const Way& way : ways(kStack.bucket())) {
            const RunReport report =
                measure(stack.step(), kDevices, classroom(), way.strategy);
            row.give(way.name, Figure::memory(report.ranks[0].bytes_sent()));
        }
    }
    const std::int64_t once = 2 * psi * (kDevices - 1) / kDevices;
    found.give("once", Figure::memory(once));
}

/// Measures stage 3: values are sharded, too.
void stage_3(LanguageLesson& lesson, Findings& found) {
    lesson.train_and_check(found, "by_rows", fully_sharded());
    lesson.train_and_check(found, "flat", fully_sharded({.shard_by = ShardBy::flat}));

    const std::int64_t psi = kStack.parameters();
    const RunReport third =
        measure(kStack.step(), kDevices, classroom(), fully_sharded(), 1, true);
    found.memory("stage_3_memory", third);
    lesson.record_run("stage_3", third);
    const std::int64_t unit = 2 * kStack.layer();
    found.give("unit", Figure::memory(unit));
    // Values of two units, and gradients of two units.
    const std::int64_t state = 16 * psi / kDevices + 4 * unit;
    found.equal("third_memory", Figure::bytes(state_of(third.ranks[0])), state);
    // The last layer is gathered only once.
    const std::int64_t once = 2 * psi * (kDevices - 1) / kDevices;
    const std::int64_t sent = 3 * once - once / kStack.layers;
    found.give({"third_bytes"_is = Figure::memory(3 * once),
                "twice"_is = Figure::memory(2 * once)});
    found.equal("third_sent", Figure::bytes(third.ranks[0].bytes_sent()), sent);

    for (const int devices : {1, 2, 4, 8, 16, 32, 64}) {
        Findings& row = found.row("stages", {"devices"_is = devices});
        for (const Way& way : ways(kStack.bucket())) {
            const RunReport report =
                measure(kStack.step(), devices, classroom(), way.strategy);
            row.give(way.name, Figure::memory(state_of(report.ranks[0])));
        }
    }
    constexpr double kLarge = 7.5e9;
    for (const int devices : {1, 8, 64}) {
        const auto gigabytes = [&](double bytes) {
            return Figure::decimals(bytes * kLarge / 1e9, 1);
        };
        found.row("large", {"devices"_is = devices, "replicas"_is = gigabytes(16),
                            "stage_1"_is = gigabytes(4 + 12.0 / devices),
                            "stage_2"_is = gigabytes(2 + 14.0 / devices),
                            "stage_3"_is = gigabytes(16.0 / devices)});
    }
}

/// Returns the time in which a device computes nothing.
Picoseconds exposed_in(const RunReport& report) {
    return report.makespan() - report.ranks[0].time.compute;
}

/// Shows how much a prefetch hides.
void prefetch(LanguageLesson& lesson, Findings& found) {
    Stack stack{6, 512, 1024};
    ClusterSpec spec = products_and_messages();
    const Picoseconds forward = picoseconds(
        2.0 * static_cast<double>(stack.rows * stack.layer()) / spec.flops_bf16);
    const Picoseconds message =
        message_time(spec.inside, 2 * stack.layer() / kDevices) * (kDevices - 1);
    found.give({"prefetch_layers"_is = stack.layers,
                "layer_forward"_is = Figure::time(forward),
                "layer_message"_is = Figure::time(message)});
    const auto run = [&](const std::string& name, const FullyShardedOptions& options) {
        const RunReport report =
            measure(stack.step(), kDevices, spec, fully_sharded(options), 1, true);
        found.timeline(name + "_step", report);
        lesson.record_run(name, report);
        found.give(name + ".time", Figure::time(report.makespan()));
        return exposed_in(report);
    };
    const int layers = stack.layers;
    found.give({"exposed_never"_is = Figure::time((2 * layers - 1) * message),
                "exposed_all"_is = Figure::time((3 * layers - 1) * message),
                "exposed_two"_is = Figure::time(2 * message)});
    found.equal("not_prefetched", Figure::time(run("late", {.prefetch = 0})),
                (3 * layers - 1) * message);
    found.equal("prefetched", Figure::time(run("early", {.prefetch = 1})), 2 * message);
}

/// Measures what sharding costs in time, and what it saves in memory.
void price(Findings& found) {
    constexpr FamilyGpt kGpt{8};
    constexpr std::int64_t kMiB = std::int64_t{1} << 20;
    const ClusterSpec spec = load_cluster("h100-data-sheet");
    found.give({"gpt_layers"_is = kGpt.layers, "gpt_parameters"_is = kGpt.parameters()});
    const BucketSizes sizes{25 * kMiB, kMiB};
    std::vector<Way> all;
    for (const Way& way : ways(sizes))
        all.push_back(way);
    all.push_back({"hidden", zero_2({.sizes = sizes, .hide_gather = true})});
    all.push_back({"kept", fully_sharded({.reshard_after_forward = false})});
    all.push_back({"late", fully_sharded({.prefetch = 0})});
    all.push_back({"packed", fully_sharded({.shard_by = ShardBy::packed_rows})});
    all.push_back({"flat", fully_sharded({.shard_by = ShardBy::flat})});
    for (const Way& way : all) {
        const UsualStep usual = usual_step(kGpt.step(), kDevices, spec, way.strategy);
        const RunReport one = measure(kGpt.step(), kDevices, spec, way.strategy);
        found.row("prices", {"way"_is = way.name,
                             "state"_is = Figure::memory(state_of(one.ranks[0])),
                             "peak"_is = Figure::memory(one.ranks[0].memory.peak),
                             "sent"_is = Figure::memory(one.ranks[0].bytes_sent()),
                             "exposed"_is = Figure::time(usual.waiting(0)),
                             "time"_is = Figure::time(usual.time())});
    }
}

/// Moves shards and the optimizer's state to the host.
void host(LanguageLesson& lesson, Findings& found) {
    lesson.train_and_check(found, "offload", zero_offload({.sizes = {600, 200}}));

    const ClusterSpec spec = load_cluster("h100-data-sheet");
    constexpr FamilyGpt kGpt{8};
    const std::int64_t psi = kGpt.parameters();
    const auto run = [&](const char* name, const MakeStrategy& strategy) {
        UsualStep usual = usual_step(kGpt.step(), kDevices, spec, strategy);
        const RankReport& rank = usual.run().ranks[0];
        found.row("hosts", {"way"_is = name, "device"_is = Figure::memory(state_of(rank)),
                            "host"_is = Figure::memory(rank.host.memory.peak),
                            "to_host"_is = Figure::memory(usual.to_host(0)),
                            "to_device"_is = Figure::memory(usual.to_device(0)),
                            "time"_is = Figure::time(usual.time())});
        return usual;
    };
    run("stage_2", zero_2());
    const UsualStep offload = run("offload", zero_offload());
    run("delayed", zero_offload({}, true));
    run("stage_3", fully_sharded());
    run("on_host", fully_sharded({.on_host = true}));
    found.equal("to_host", Figure::bytes(kDevices * offload.to_host(0)), 2 * psi);
}

/// Returns the largest n such that the family's GPT fits each of `devices` devices.
/// Bisects from `fitting`, a size that is known to fit. Each GPT is run.
// lesson: largest-that-fits
int largest_that_fits(int devices, const ClusterSpec& spec, const MakeStrategy& strategy,
                      int fitting = 0) {
    const auto fits = [&](int layers) {
        try {
            measure(FamilyGpt{layers, FamilyGpt::Keeps::input}.step(), devices, spec,
                    strategy);
            return true;
        } catch (const OutOfMemoryError&) {
            return false;
        }
    };
    int stride = 1;
    while (fits(fitting + stride))
        fitting += std::exchange(stride, 2 * stride);
    int failing = fitting + stride;
    while (failing - fitting > 1) {
        const int middle = (fitting + failing) / 2;
        (fits(middle) ? fitting : failing) = middle;
    }
    return fitting;
}
// lesson: end

/// Searches for the largest model that fits.
void fits(Findings& found) {
    const ClusterSpec spec = load_cluster("h100-data-sheet");
    std::map<std::string, int> fitting;  // by way; never smaller with more devices
    for (const int devices : {1, 4, 8, 64}) {
        Findings& row = found.row("largest", {"devices"_is = devices});
        for (const Way& way : ways({})) {
            int& layers = fitting[way.name];
            layers = largest_that_fits(devices, spec, way.strategy, layers);
            const FamilyGpt gpt{layers};
            row.give(way.name,
                     Figure::decimals(static_cast<double>(gpt.parameters()) / 1e9, 1));
        }
    }
}

/// Measures activations, which ZeRO does not shard.
void activations(Findings& found) {
    using Keeps = FamilyGpt::Keeps;
    const ClusterSpec spec = load_cluster("h100-data-sheet");
    for (const auto& [name, keeps] :
         {std::pair{"all", Keeps::all},
          std::pair{"but_attention", Keeps::all_but_attention},
          std::pair{"input", Keeps::input}, std::pair{"all_on_host", Keeps::all_on_host},
          std::pair{"input_on_host", Keeps::input_on_host}}) {
        const UsualStep usual =
            usual_step(FamilyGpt{8, keeps}.step(), kDevices, spec, fully_sharded());
        const RankReport& rank = usual.run().ranks[0];
        found.row("left", {"way"_is = name, "state"_is = Figure::memory(state_of(rank)),
                           "activations"_is = Figure::memory(
                               rank.memory.peak_of(MemoryCategory::activations)),
                           "peak"_is = Figure::memory(rank.memory.peak),
                           "time"_is = Figure::time(usual.time())});
    }
}

}  // namespace

LessonEntry zero_lesson() {
    LessonEntry entry;
    entry.slug = "zero";
    entry.folder = "08_zero";
    entry.most_ranks = 64;
    entry.settings = language_settings();
    entry.takes_text = true;
    entry.make = lesson_of<LanguageLesson>({{"bytes", bytes},
                                            {"stage_1", stage_1},
                                            {"stage_2", stage_2},
                                            {"stage_3", stage_3},
                                            {"prefetch", prefetch},
                                            {"price", price},
                                            {"host", host},
                                            {"fits", fits},
                                            {"activations", activations}});
    return entry;
}

}  // namespace lockstep::lessons
