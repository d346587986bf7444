#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include <fmt/format.h>

#include "lessons/01_gradient_accumulation/language_lesson.hpp"
#include "lessons/runner/curves.hpp"
#include "lessons/runner/input_files.hpp"
#include "lessons/runner/rounding.hpp"
#include "src/comm/chunks.hpp"
#include "src/core/philox.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/cost/collectives.hpp"
#include "src/cost/virtual_time.hpp"
#include "src/nn/linear.hpp"
#include "src/parallel/ring_collectives.hpp"
#include "src/report/compare.hpp"
#include "src/report/describe.hpp"
#include "src/report/timeline.hpp"

namespace lockstep::lessons {

namespace {

/// The data to which a linear layer is fitted.
struct Regression {
    HostTensor inputs;   ///< (rows, features)
    HostTensor targets;  ///< (rows, outputs)
    std::int64_t rows() const { return inputs.shape()[0]; }
};

/// A range of rows, and the weight of its loss.
struct Share {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    double weight = 1;
};

struct LinearSettings {
    int epochs = 100;  ///< one step each
    double learning_rate = 0.01;
    std::uint64_t seed = 0;

    SgdOptions optimizer() const { return {learning_rate, 0, 0}; }
};

constexpr std::int64_t kFeatures = 10;

constexpr std::int64_t kOutputs = 5;

constexpr double kNoise = 0.1;

double true_weight(std::int64_t output, std::int64_t feature, std::uint64_t seed) {
    return RandomStream(seed, "regression/true weight")
        .normal(static_cast<std::uint64_t>(output * kFeatures + feature));
}

/// Generates random data in the shape of the notes, 10 features and 5 outputs. The
/// targets are a fixed linear map of the inputs plus noise.
Regression generate_regression(std::int64_t rows, DType dtype, std::uint64_t seed) {
    Regression data{HostTensor({rows, kFeatures}, dtype),
                    HostTensor({rows, kOutputs}, dtype)};
    const RandomStream inputs(seed, "regression/inputs");
    const RandomStream noise(seed, "regression/noise");
    for (std::int64_t i = 0; i < rows * kFeatures; ++i)
        data.inputs.set(i, inputs.normal(static_cast<std::uint64_t>(i)));
    for (std::int64_t i = 0; i < rows * kOutputs; ++i) {
        double target = kNoise * noise.normal(static_cast<std::uint64_t>(i));
        for (std::int64_t f = 0; f < kFeatures; ++f)
            target += true_weight(i % kOutputs, f, seed) *
                      data.inputs.at(i / kOutputs * kFeatures + f);
        data.targets.set(i, target);
    }
    return data;
}

/// Loads the table of --data; its last `targets` columns are the targets.
Regression load_regression(const std::filesystem::path& path, std::int64_t targets,
                           DType dtype) {
    const NumberTable table = load_csv(path);
    const std::int64_t rows = table.values.shape()[0];
    const std::int64_t columns = table.values.shape()[1];
    require(targets < columns,
            "{} has {} columns; with targets={} none is left for the inputs",
            path.string(), columns, targets);
    const std::int64_t features = columns - targets;
    Regression data{HostTensor({rows, features}, dtype),
                    HostTensor({rows, targets}, dtype)};
    for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t column = 0; column < columns; ++column) {
            const double value = table.values.at(row * columns + column);
            if (column < features)
                data.inputs.set(row * features + column, value);
            else
                data.targets.set(row * targets + column - features, value);
        }
    }
    return data;
}

/// Returns the rows of --data, or generated ones.
Regression regression_of(const LessonOptions& options, std::int64_t rows) {
    if (!options.data) return generate_regression(rows, options.dtype, options.seed);
    return load_regression(*options.data, options.values.integer("targets"),
                           options.dtype);
}

/// Splits the rows evenly into `parts`. The weight of each share is total_weight times
/// its fraction of the rows.
std::vector<Share> even_shares(std::int64_t rows, int parts, double total_weight) {
    std::vector<Share> shares;
    for (int part = 0; part < parts; ++part) {
        const Chunk rows_of_part = chunk(rows, parts, part);
        shares.push_back({rows_of_part.begin, rows_of_part.count,
                          total_weight * ratio(rows_of_part.count, rows)});
    }
    return shares;
}

/// Returns the training of one linear layer by SGD on the shares of shares_of(rank).
Training linear_training(const Regression& data, const LinearSettings& settings,
                         std::function<std::vector<Share>(int rank)> shares_of) {
    Training training;
    training.make_model = [features = data.inputs.shape()[1],
                           outputs = data.targets.shape()[1]](const ParameterInit& init) {
        auto model = std::make_unique<Linear>(init.child("linear"), features, outputs);
        model->set_input_gradient(false);
        return model;
    };
    training.make_optimizer =
        [sgd = settings.optimizer()](std::vector<Parameter*> parameters) {
            return make_optimizer<Sgd>(std::move(parameters), sgd);
        };
    training.loss = mean_squared_error;
    training.batches = [data, shares_of = std::move(shares_of)](int rank, int) {
        std::vector<HostBatch> batches;
        for (const Share& share : shares_of(rank))
            batches.push_back({data.inputs.rows(share.begin, share.count),
                               data.targets.rows(share.begin, share.count),
                               share.weight});
        return batches;
    };
    training.same_batches = true;
    training.steps = settings.epochs;
    training.dtype = data.inputs.dtype();
    training.seed = settings.seed;
    return training;
}

/// The state that the lesson's experiments share.
struct GradientAccumulation final : Lesson {
    /// Throws UsageError if the lesson cannot run with these options.
    GradientAccumulation(const LessonOptions& options, Record& record)
        : Lesson(options, record),
          parts(options.ranks.value_or(4)),
          linear{static_cast<int>(options.values.integer("epochs")),
                 options.values.number("learning_rate"), options.seed} {
        data = regression_of(options, std::int64_t{25} * parts);
        language = make_language_task(options, parts);
        // A weight is a sum with one term for each row of each step.
        record.options.sum_length = std::max(linear.epochs * data.rows(),
                                             language->steps * language->rows_per_step());
        require(data.rows() >= parts,
                "{} rows of data are too few for {} ranks: each rank needs at least one",
                data.rows(), parts);
    }

    /// Counts the roundings that follow one another: of the prediction, its error, the
    /// gradient after each micro-batch and after each addition over devices, the
    /// parameter.
    int stores() const { return 2 * parts + 3; }
    double bound() const {
        return RoundingBound{1e-5, 1e-13}.value(options().dtype, stores());
    }

    int parts;
    LinearSettings linear;
    Regression data;
    std::shared_ptr<const LanguageTask> language;
    RunReport accumulation;
};

RunReport train_alone(GradientAccumulation& lesson, const Regression& data,
                      const std::vector<Share>& shares) {
    return train(*lesson.devices(1),
                 linear_training(data, lesson.linear, [&](int) { return shares; }));
}

RunReport train_together(GradientAccumulation& lesson, const Regression& data,
                         const std::vector<Share>& shares, double rate_factor = 1,
                         const LessonOptions* other_options = nullptr) {
    LinearSettings settings = lesson.linear;
    settings.learning_rate *= rate_factor;
    Training training = linear_training(
        data, settings, [&](int rank) { return std::vector<Share>{shares[rank]}; });
    training.strategy = all_reduce_strategy;
    return train(
        *make_cluster(other_options ? *other_options : lesson.options(), lesson.parts),
        training);
}

/// Like train_together, but without the full check: the sum of the weighted gradients is
/// deliberately not their mean.
RunReport train_wrongly(GradientAccumulation& lesson, const Regression& data,
                        const std::vector<Share>& shares) {
    const LessonOptions unwatched = lesson.options().without_full_check();
    return train_together(lesson, data, shares, 1, &unwatched);
}

/// Gives the page the last losses of two runs in bf16: with and without f32 masters.
void without_masters(GradientAccumulation& lesson, Findings& found) {
    LinearSettings longer = lesson.linear;
    longer.epochs *= 3;
    const auto last_loss = [&](bool has_masters) {
        Training training = linear_training(lesson.data, longer, [&](int) {
            return even_shares(lesson.data.rows(), lesson.parts, lesson.parts);
        });
        if (!has_masters)
            training.make_optimizer = [&](std::vector<Parameter*> parameters) {
                return std::make_unique<Sgd>(std::move(parameters), longer.optimizer());
            };
        return losses_of(train(*lesson.devices(1), training)).back();
    };
    found.give({"longer_epochs"_is = longer.epochs,
                "loss_with_masters"_is = Figure::decimals(last_loss(true), 4),
                "loss_without_masters"_is = Figure::decimals(last_loss(false), 4)});
}

void accumulate(GradientAccumulation& lesson, Findings& found) {
    const auto rows = lesson.data.rows();
    found.give({"numbers"_is = lesson.has_numbers(), "parts"_is = lesson.parts,
                "rows"_is = rows,
                "part_rows"_is = (rows + lesson.parts - 1) / lesson.parts,
                "features"_is = lesson.data.inputs.shape()[1],
                "outputs"_is = lesson.data.targets.shape()[1],
                "learning_rate"_is = Figure::count(lesson.linear.learning_rate),
                "epochs"_is = lesson.linear.epochs,
                "accumulation_updates"_is = lesson.linear.epochs,
                "updates_each"_is = lesson.linear.epochs * lesson.parts});

    const double total = lesson.parts;
    const RunReport reference =
        train_alone(lesson, lesson.data, even_shares(rows, 1, total));
    lesson.accumulation =
        train_alone(lesson, lesson.data, even_shares(rows, lesson.parts, total));
    lesson.record_input("regression/inputs", lesson.data.inputs);
    lesson.record_input("regression/targets", lesson.data.targets);
    lesson.record().models["regression"] = trained(
        describe_linear(lesson.data.inputs.shape()[1], lesson.data.targets.shape()[1]),
        describe(lesson.linear.optimizer(), lesson.dtype()), "mean_squared_error", total,
        lesson.linear.epochs);
    record_initial(lesson.record(), "regression", reference);
    record_variant(lesson.record(), "reference", reference);
    record_variant(lesson.record(), "accumulation", lesson.accumulation);

    if (lesson.has_numbers()) {
        const std::vector<double> curve = losses_of(lesson.accumulation);
        found.give({"loss_first"_is = Figure::decimals(curve.front(), 4),
                    "loss_last"_is = Figure::decimals(curve.back(), 4)});
    }
    lesson.values_at_most(found, "accumulation",
                          parameter_difference(reference, lesson.accumulation),
                          lesson.bound());
    const bool bf16 = lesson.dtype() == DType::bf16 && lesson.has_numbers();
    found.give("bf16", bf16);
    if (bf16) without_masters(lesson, found);
}

void distribute(GradientAccumulation& lesson, Findings& found) {
    const RunReport together = train_wrongly(
        lesson, lesson.data, even_shares(lesson.data.rows(), lesson.parts, lesson.parts));
    record_variant(lesson.record(), "data_parallel", together);
    lesson.values_at_most(found, "data_parallel",
                          parameter_difference(lesson.accumulation, together),
                          lesson.bound());
    if (lesson.has_numbers()) found.equal("replicas", replicas_that_differ(together), 0);
    found.give("f64", lesson.dtype() == DType::f64);
    // f64 has 53 significant bits, f32 has 24 and bf16 has 8.
    found.give("digits_gained", lesson.dtype() == DType::f32 ? 9 : 13);
}

/// Returns shares in the proportion 1 : 2 : 3 : …
std::vector<Share> unequal_shares(std::int64_t rows, int parts, bool by_rows) {
    std::vector<Share> shares;
    std::int64_t begin = 0;
    const std::int64_t spare = rows - parts;
    const std::int64_t all = std::int64_t{parts} * (parts + 1) / 2;
    for (int part = 0; part < parts; ++part) {
        const std::int64_t upto = std::int64_t{part + 1} * (part + 2) / 2;
        const std::int64_t end = part + 1 + spare * upto / all;
        const double weight = by_rows ? ratio(end - begin, rows) : 1.0 / parts;
        shares.push_back({begin, end - begin, weight});
        begin = end;
    }
    return shares;
}

void average_unequal(GradientAccumulation& lesson, Findings& found,
                     const Regression& data) {
    const std::vector<Share> shares = unequal_shares(data.rows(), lesson.parts, true);
    std::string sizes;
    for (const Share& share : shares)
        sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", share.count);
    found.give("share_sizes", sizes);
    const RunReport whole = train_alone(lesson, data, even_shares(data.rows(), 1, 1));
    const RunReport weighted = train_together(lesson, data, shares);
    const std::vector<Share> alike = unequal_shares(data.rows(), lesson.parts, false);
    const RunReport unweighted = train_wrongly(lesson, data, alike);
    lesson.values_at_most(found, "weighted", parameter_difference(whole, weighted),
                          lesson.bound());
    if (!lesson.has_numbers()) return;
    found.give("unweighted_difference",
               Figure::power(parameter_difference(whole, unweighted)));
    const LessonOptions watched = lesson.options().with_full_check();
    found.give("f28",
               diagnosis_of([&] { train_together(lesson, data, alike, 1, &watched); }));
}

void average(GradientAccumulation& lesson, Findings& found) {
    found.give({"mean_rate"_is = lesson.parts,
                "mean_rate_inverse"_is = Figure::count(1.0 / lesson.parts)});
    const RunReport mean =
        train_together(lesson, lesson.data,
                       even_shares(lesson.data.rows(), lesson.parts, 1), lesson.parts);
    lesson.values_at_most(found, "mean_against_sum",
                          parameter_difference(lesson.accumulation, mean),
                          lesson.bound());

    const Regression data =
        lesson.options().data
            ? lesson.data
            : regression_of(lesson.options(), std::int64_t{250} * lesson.parts);
    found.give("many_rows", std::to_string(data.rows()));
    const RunReport whole = train_alone(lesson, data, even_shares(data.rows(), 1, 1));
    const RunReport shared =
        train_together(lesson, data, even_shares(data.rows(), lesson.parts, 1));
    lesson.values_at_most(found, "even_shares", parameter_difference(whole, shared),
                          lesson.bound());
    const bool unequal = lesson.parts > 1 && data.rows() > lesson.parts;
    found.give("unequal", unequal);
    if (unequal) average_unequal(lesson, found, data);
}

const RankReport& busiest(const RunReport& report) {
    return *std::max_element(report.ranks.begin(), report.ranks.end(),
                             [](const RankReport& a, const RankReport& b) {
                                 return a.memory.peak < b.memory.peak;
                             });
}

/// Returns the gradients' all-reduces, one for each parameter.
std::vector<CollectiveCall> gradient_reductions(const RunReport& report) {
    std::vector<CollectiveCall> calls;
    for (const auto& [name, tensor] : report.ranks[0].kept)
        if (name.starts_with("grad/"))
            calls.push_back({Verb::all_reduce, tensor.elements(),
                             bytes_of(tensor.dtype()),
                             static_cast<int>(report.ranks.size())});
    return calls;
}

/// "α 1 us, β 10 GB/s"
std::string link_text(const LinkSpec& link) {
    const std::string rate = link.bytes_per_second > 0
                                 ? fmt::format("{:.4g} GB/s", link.bytes_per_second / 1e9)
                                 : "∞";
    return fmt::format("α {}, β {}", time_text(picoseconds(link.alpha_seconds)), rate);
}

/// Gives the page the run's time, and its busiest rank's peak memory and sent bytes.
void give_costs(Findings& found, const std::string& run, const RunReport& report) {
    const RankReport& rank = busiest(report);
    const auto peak = [&](const std::string& name, MemoryCategory category) {
        found.give(run + "." + name, Figure::memory(rank.memory.peak_of(category)));
    };
    found.give(run + ".time", Figure::time(report.makespan()));
    peak("parameters", MemoryCategory::parameters);
    peak("gradients", MemoryCategory::gradients);
    peak("optimizer", MemoryCategory::optimizer);
    peak("activations", MemoryCategory::activations);
    found.give(run + ".sent", Figure::memory(rank.bytes_sent()));
}

/// Compares the bytes and the time of a data-parallel step's
/// all-reduces with the formulas.
void check_reductions(Findings& found, const RunReport& report,
                      const LessonOptions& options) {
    const std::vector<CollectiveCall> calls = gradient_reductions(report);
    const int n = static_cast<int>(report.ranks.size());
    std::vector<int> members(static_cast<std::size_t>(n));
    std::iota(members.begin(), members.end(), 0);
    const ClusterSpec spec = load_cluster(options.cluster);
    // Elsewhere a step is not one message of a ring.
    const bool is_ring = options.has_virtual_time() && spec.algorithms.empty() &&
                         n <= spec.devices_per_node;
    std::int64_t elements = 0;
    std::int64_t bytes = 0;
    Picoseconds time = 0;
    for (const CollectiveCall& call : calls) {
        elements += call.count;
        bytes += collective_traffic(call, 0).bytes_sent;
        time += collective_time(call, spec, members);
    }
    const RankReport& first = report.ranks[0];
    const std::int64_t gradients = elements * bytes_of(options.dtype);
    found.give({"number_bytes"_is = bytes_of(options.dtype),
                "step_bytes"_is = Figure::bytes(
                    std::llround(2.0 * (n - 1) / n * static_cast<double>(gradients))),
                "step_bytes_without_n"_is = Figure::bytes(2 * gradients),
                "step_bytes_once"_is = Figure::bytes(gradients)});
    found.equal("step_bytes_sent", Figure::bytes(first.bytes_sent()), bytes);
    found.give({"reductions"_is = calls.size(),
                "communication"_is = Figure::time(first.time.communication),
                "virtual_time"_is = options.has_virtual_time(),
                "cluster"_is = options.cluster, "has_formula"_is = is_ring});
    if (!is_ring) return;
    const LinkSpec& link = spec.inside;
    const Picoseconds latencies =
        Picoseconds{2} * (n - 1) * picoseconds(link.alpha_seconds);
    const Picoseconds bare = time - static_cast<Picoseconds>(calls.size()) * latencies;
    found.give({"ring_link"_is = link_text(link), "step_time"_is = Figure::time(time),
                "step_time_without_alpha"_is = Figure::time(bare),
                "step_time_one_alpha"_is = Figure::time(bare + latencies)});
    found.equal("step_time_taken", Figure::time(first.time.communication), time);
}

/// Measures a step of the language model for each way to split the batch.
void measure(GradientAccumulation& lesson, Findings& found) {
    const auto task = std::make_shared<LanguageTask>(*lesson.language);
    task->steps = 1;
    const auto whole_task = std::make_shared<LanguageTask>(*task);
    whole_task->micro_batch_rows = task->rows_per_step();
    whole_task->micro_batches = 1;

    const auto first_of_all = [](int) { return 0; };
    const auto own = [](int rank) { return rank; };
    const RunReport whole =
        train(*lesson.devices(1, true),
              language_training(whole_task, lesson.options(), first_of_all, 1));
    const RunReport alone =
        train(*lesson.devices(1, true),
              language_training(task, lesson.options(), first_of_all, lesson.parts));
    Training training = language_training(task, lesson.options(), own, 1);
    training.strategy = all_reduce_strategy;
    const RunReport together = train(*lesson.devices(lesson.parts, true), training);
    lesson.record_run("step_whole", whole);
    lesson.record_run("step_accumulation", alone);
    lesson.record_run("step_data_parallel", together);

    check_reductions(found, together, lesson.options());
    give_costs(found, "whole", whole);
    give_costs(found, "alone", alone);
    give_costs(found, "together", together);
    found.timeline("accumulation_step", alone);
    found.timeline("data_parallel_step", together);
    // Many devices are not worth it if a step is short and messages are slow.
    found.give("no_gain", together.ranks[0].time.communication > 0 &&
                              together.makespan() >= whole.makespan());
}

constexpr std::int64_t kElements = 1000;

/// Returns a program that all-reduces a buffer of random values.
Program reduce_with(bool by_hand, const LessonOptions& options) {
    return [by_hand, dtype = options.dtype, seed = options.seed](Rank& rank) {
        const Tensor buffer = rank.device().empty({kElements}, dtype);
        rank.device().random_normal(buffer, {seed, "ring/buffer"}, 0, 1,
                                    rank.index() * kElements);
        if (by_hand)
            ring_all_reduce(rank.device(), rank.world(), buffer);
        else
            rank.world().all_reduce(buffer).wait();
        rank.keep("sum", buffer);
    };
}

void compare_algorithms(Findings& found, const ClusterSpec& spec) {
    found.give("inside_link", link_text(spec.inside));
    for (const int n : {4, 64}) {
        for (const std::int64_t bytes : {std::int64_t{1} << 10, std::int64_t{1} << 16,
                                         std::int64_t{1} << 20, std::int64_t{1} << 26}) {
            const double ring = ring_all_reduce_seconds(spec.inside, bytes, n);
            const double doubling = recursive_doubling_seconds(spec.inside, bytes, n);
            const double halving = halving_doubling_seconds(spec.inside, bytes, n);
            const auto time = [](double seconds) {
                return Figure::time(countable_picoseconds(seconds));
            };
            found.row("algorithms",
                      {"devices"_is = n, "buffer"_is = Figure::memory(bytes),
                       "ring"_is = time(ring), "doubling"_is = time(doubling),
                       "halving"_is = time(halving),
                       "fastest"_is = doubling < ring && doubling < halving
                                          ? "recursive_doubling"
                                      : halving < ring  ? "halving_doubling"
                                      : halving == ring ? "–"
                                                        : "ring"});
        }
    }
}

/// Compares the sums within a bound, because NCCL may add in another order than the ring.
void check_sums(Findings& found, const RunReport& by_hand, const RunReport& built_in) {
    double worst = 0;
    double bound = 0;
    for (std::size_t rank = 0; rank < by_hand.ranks.size(); ++rank) {
        const Comparison sums = compare_tensors(by_hand.ranks[rank].kept,
                                                built_in.ranks[rank].kept, std::nullopt);
        const HostTensor& sum = by_hand.ranks[rank].kept.at("sum");
        bound = sum_bound(sum.dtype(), static_cast<std::int64_t>(by_hand.ranks.size()));
        const double here = sums.tensors.front().largest_relative;
        if (!(here <= worst)) worst = here;
        if (std::isnan(worst)) break;
    }
    found.at_most("ring_sums", worst, bound);
}

/// Passes chunks around the ring. Each device sends before it receives, and hangs.
void send_before_receive(Rank& rank) {
    Communicator& ring = rank.world();
    const int right = (rank.index() + 1) % rank.size();
    const int left = (rank.index() + rank.size() - 1) % rank.size();
    const Tensor going = rank.device().zeros({kElements / rank.size()}, DType::f32);
    const Tensor arriving = rank.device().zeros(going.shape(), DType::f32);
    // lesson: ring-that-hangs
    for (int hop = 0; hop < ring.size() - 1; ++hop) {
        ring.send(going, right).wait();
        ring.recv(arriving, left).wait();
    }
    // lesson: end
}

/// Runs the hand-written and the built-in all-reduce on the same buffers. Compares
/// values, messages and bytes.
void ring(GradientAccumulation& lesson, Findings& found) {
    const RunReport by_hand =
        lesson.devices(lesson.parts, true)->run(reduce_with(true, lesson.options()));
    const RunReport built_in =
        lesson.devices(lesson.parts)->run(reduce_with(false, lesson.options()));
    found.timeline("ring_by_hand", by_hand);
    found.give({"ring_elements"_is = kElements, "parts_less_1"_is = lesson.parts - 1,
                "ring_messages"_is = 2 * (lesson.parts - 1),
                "ring_messages_n"_is = 2 * lesson.parts});
    const std::string hangs =
        diagnosis_of([&] { sim::make_cluster(lesson.parts)->run(send_before_receive); });
    found.give({"hangs"_is = !hangs.empty(), "ring_that_hangs"_is = hangs});

    found.equal("ring_messages_sent", by_hand.ranks[0].messages_sent(),
                2.0 * (lesson.parts - 1));
    std::int64_t byte_gap = 0;
    std::int64_t message_gap = 0;
    std::int64_t differing = 0;
    for (std::size_t rank = 0; rank < by_hand.ranks.size(); ++rank) {
        const RankReport& mine = by_hand.ranks[rank];
        const RankReport& theirs = built_in.ranks[rank];
        byte_gap += std::abs(mine.bytes_sent() - theirs.bytes_sent());
        message_gap += std::abs(mine.messages_sent() - theirs.messages_sent());
        if (lesson.has_numbers() && !(mine.kept.at("sum") == theirs.kept.at("sum")))
            ++differing;
    }
    found.equal("ring_bytes", byte_gap, 0);
    found.equal("ring_message_gap", message_gap, 0);
    const bool exact = lesson.has_numbers() && lesson.has_virtual_time();
    const bool close = lesson.has_numbers() && !lesson.has_virtual_time();
    found.give({"exact_sums"_is = exact, "close_sums"_is = close});
    if (exact) found.equal("ring_bits", differing, 0);
    if (close) check_sums(found, by_hand, built_in);
    compare_algorithms(found, load_cluster(lesson.options().cluster));
}

void read_text(GradientAccumulation& lesson, Findings& found) {
    const std::shared_ptr<const LanguageTask> task = lesson.language;
    const CharModelSizes& sizes = task->sizes;
    found.give({"context"_is = sizes.context, "width"_is = sizes.width,
                "hidden"_is = sizes.hidden, "vocabulary"_is = sizes.vocabulary,
                "characters"_is = task->text.ids.size(),
                "parameters"_is = sizes.vocabulary * sizes.width +
                                  sizes.hidden * (sizes.context * sizes.width + 1) +
                                  sizes.vocabulary * (sizes.hidden + 1),
                "step_rows"_is = task->rows_per_step()});

    const RunReport alone =
        train(*lesson.devices(1),
              language_training(
                  task, lesson.options(), [](int) { return 0; }, lesson.parts),
              advancing("1 device", task->steps));
    Training training = language_training(
        task, lesson.options(), [](int rank) { return rank; }, 1);
    training.strategy = all_reduce_strategy;
    const RunReport together =
        train(*lesson.devices(lesson.parts), training,
              advancing(fmt::format("{} devices", lesson.parts), task->steps));
    record_variant(lesson.record(), "language_model_accumulation", alone);
    record_variant(lesson.record(), "language_model_data_parallel", together);
    record_language_inputs(lesson.record(), *task);
    record_initial(lesson.record(), "language_model", alone);

    const std::vector<double> one = losses_of(alone);
    const Curves curves{{"alone", "together"}, {one, losses_of(together)}};
    if (lesson.has_numbers()) curves.give(found, "curve");
    // The hidden layer stores four more results: its sum, its tanh, and their gradients.
    constexpr int kStoresOfHiddenLayer = 4;
    lesson.values_at_most(
        found, "text_curves", curves.widest_gap(),
        loss_bound(lesson.dtype(), lesson.stores() + kStoresOfHiddenLayer, one,
                   {1e-4, 1e-4}));
    const double entropy = unigram_entropy(task->text);
    double last = 0;
    const std::size_t window = std::min<std::size_t>(one.size(), 20);
    for (std::size_t i = one.size() - window; i < one.size(); ++i)
        last += one[i] / static_cast<double>(window);
    found.give("entropy", Figure::decimals(entropy, 3));
    constexpr int kEnough = 400;
    found.give("enough_steps", task->steps >= kEnough);
    if (task->steps >= kEnough)
        lesson.values_at_most(found, "learnt", last / entropy, 0.9);
}

/// Runs an all-reduce of `elements` numbers on `ranks` devices of the classroom cluster.
RunReport reduce_in_classroom(int ranks, std::int64_t elements) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = load_cluster("classroom");
    options.numbers = false;
    return sim::make_cluster(std::move(options))->run([elements](Rank& rank) {
        const Tensor buffer = rank.device().empty({elements}, DType::f32);
        rank.world().all_reduce(buffer).wait();
    });
}

/// Measures the answers to three questions that the reader works out by hand.
void predict(Findings& found) {
    constexpr std::int64_t kParameters = 1'000'000;
    const RunReport eight = reduce_in_classroom(8, kParameters);
    const RunReport two = reduce_in_classroom(2, kParameters);
    const std::int64_t sent = eight.ranks[0].bytes_sent();
    found.give({"eight_bytes"_is = Figure::bytes(sent),
                "eight_time"_is = Figure::time(eight.makespan()),
                "two_time"_is = Figure::time(two.makespan())});
    found.equal("classroom_bytes", Figure::bytes(sent), 7e6);
    found.equal("classroom_time", Figure::time(eight.makespan()), 714e6);
}

}  // namespace

LessonEntry gradient_accumulation_lesson() {
    LessonEntry entry;
    entry.slug = "gradient-accumulation";
    entry.folder = "01_gradient_accumulation";
    entry.most_ranks = 64;
    entry.settings = {
        {"epochs", "steps of the linear layer", Whole{1, 1'000'000, 100}},
        {"learning_rate", "of the linear layer", Real{0, 1e6, 0.01}},
        {"targets", "number of target columns; they are the last columns of --data",
         Whole{1, 1'000'000, 1}},
    };
    std::ranges::copy(
        language_settings({.steps = 400, .rows = 64, .width = 16, .hidden = 128}),
        std::back_inserter(entry.settings));
    entry.takes_text = true;
    entry.takes_data = true;
    entry.make = lesson_of<GradientAccumulation>({{"accumulate", accumulate},
                                                  {"distribute", distribute},
                                                  {"average", average},
                                                  {"ring", ring},
                                                  {"read_text", read_text},
                                                  {"measure", measure},
                                                  {"predict", predict}});
    return entry;
}

}  // namespace lockstep::lessons
