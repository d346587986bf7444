#include "lessons/01_gradient_accumulation/lesson.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "sim/cluster.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/cost/collectives.hpp"
#include "src/cost/virtual_time.hpp"
#include "src/parallel/ring_collectives.hpp"
#include "src/report/compare.hpp"
#include "src/report/describe.hpp"
#include "src/report/timeline.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kMostRanks = 64;

}  // namespace

GradientAccumulation::GradientAccumulation(const LessonOptions& options, Record& record)
    : Lesson(options, record),
      parts_(options.ranks.value_or(4)),
      linear_{static_cast<int>(options.values.integer("epochs")),
              options.values.number("learning_rate"), options.seed} {
    data_ = regression_of(options, std::int64_t{25} * parts_);
    language_ = make_language_task(options, parts_);
    // A weight is a sum of a term for each row of each step.
    record.options.sum_length = std::max(linear_.epochs * data_.rows(),
                                         language_->steps * language_->rows_per_step());
    require(data_.rows() >= parts_,
            "{} rows of data cannot be dealt out to {} ranks: each needs one",
            data_.rows(), parts_);
}

std::vector<Step> GradientAccumulation::steps() {
    return {
        step("Small batches, one step", &GradientAccumulation::accumulate),
        step("The same batches on as many devices", &GradientAccumulation::distribute),
        step("Sum or mean", &GradientAccumulation::average),
        step("What differs: time and memory", &GradientAccumulation::measure),
        step("The ring by hand", &GradientAccumulation::ring),
        step("A real model on real text", &GradientAccumulation::read_text),
        step("Predict first", &GradientAccumulation::predict)};
}

LessonEntry gradient_accumulation_lesson() {
    LessonEntry entry;
    entry.slug = "gradient-accumulation";
    entry.title = "Gradient accumulation is data parallelism";
    entry.question =
        "Why do four small batches on one device and one batch on four devices end in "
        "the same weights, and what does each cost?";
    entry.default_ranks = 4;
    entry.most_ranks = kMostRanks;
    entry.settings = {
        {"epochs", "steps of the linear layer", Whole{1, 1'000'000, 100}},
        {"learning_rate", "of the linear layer", Real{0, 1e6, 0.01}},
        {"targets", "columns of --data that are targets, the last ones",
         Whole{1, 1'000'000, 1}},
        {"steps", "of the language model", Whole{1, 1'000'000, 400}},
        {"rows", "of a micro-batch of the language model", Whole{1, 65536, 64}},
        {"context", "characters that the next one is predicted from", Whole{1, 1024, 8}},
        {"width", "numbers that stand for a character", Whole{1, 4096, 16}},
        {"hidden", "units of the hidden layer", Whole{1, 16384, 128}},
        {"text_learning_rate", "of the language model", Real{0, 1e6, 0.2}},
    };
    entry.takes_text = true;
    entry.takes_data = true;
    entry.make = make_lesson<GradientAccumulation>;
    return entry;
}

RunReport GradientAccumulation::train_alone(const Regression& data,
                                            const std::vector<Share>& shares) {
    return train(*make_cluster(options(), 1),
                 linear_training(data, linear_, [&](int) { return shares; }));
}

RunReport GradientAccumulation::train_together(const Regression& data,
                                               const std::vector<Share>& shares,
                                               double rate_factor,
                                               const LessonOptions* other_options) {
    LinearSettings settings = linear_;
    settings.learning_rate *= rate_factor;
    Training training = linear_training(
        data, settings, [&](int rank) { return std::vector<Share>{shares[rank]}; });
    training.data_parallel = true;
    return train(*make_cluster(other_options ? *other_options : options(), parts_),
                 training);
}

RunReport GradientAccumulation::train_wrongly(const Regression& data,
                                              const std::vector<Share>& shares) {
    const LessonOptions unwatched = options().without_full_check();
    return train_together(data, shares, 1, &unwatched);
}

void GradientAccumulation::accumulate(Page& page) {
    const auto rows = data_.rows();
    page.text(
        fmt::format("A batch of {} rows does not fit, say, but {} rows do. So go through "
                    "the batch in {} parts, one after another, and let backward add each "
                    "part's gradient to what is there. Then take one step with the sum.",
                    rows, (rows + parts_ - 1) / parts_, parts_));
    page.quote("gradient-accumulation");
    page.text(fmt::format(
        "The model is one linear layer, {} to {}, the loss the mean squared error, the "
        "optimizer SGD with learning rate {}, for {} epochs of one step each. Each "
        "part's loss is its own mean, and the {} gradients are summed: that is {} times "
        "the mean over the whole batch.",
        data_.inputs.shape()[1], data_.targets.shape()[1], linear_.learning_rate,
        linear_.epochs, parts_, parts_));

    const double total = parts_;
    const RunReport reference = train_alone(data_, even_shares(rows, 1, total));
    accumulation_ = train_alone(data_, even_shares(rows, parts_, total));
    record().inputs.insert_or_assign("regression/inputs", data_.inputs);
    record().inputs.insert_or_assign("regression/targets", data_.targets);
    record().models["regression"] =
        trained(describe_linear(data_.inputs.shape()[1], data_.targets.shape()[1]),
                describe(linear_.optimizer(), options().dtype), "mean_squared_error",
                total, linear_.epochs);
    record_initial(record(), "regression", reference);
    record_variant(record(), "reference", reference);
    record_variant(record(), "accumulation", accumulation_);

    const std::vector<double> curve = losses_of(accumulation_);
    if (has_numbers())
        page.text(
            fmt::format("The loss, summed over the parts, goes from {:.4f} to {:.4f}.",
                        curve.front(), curve.back()));
    check_values(
        page, "accumulation against the whole batch at once, largest relative difference",
        parameter_difference(reference, accumulation_), bound());
    if (options().dtype == DType::bf16 && has_numbers()) without_masters(page);
}

void GradientAccumulation::without_masters(Page& page) {
    LinearSettings longer = linear_;
    longer.epochs *= 3;
    const auto last_loss = [&](bool has_masters) {
        Training training = linear_training(data_, longer, [&](int) {
            return even_shares(data_.rows(), parts_, parts_);
        });
        if (!has_masters)
            training.make_optimizer = [&](std::vector<Parameter*> parameters) {
                return std::make_unique<Sgd>(std::move(parameters), longer.optimizer());
            };
        return losses_of(train(*make_cluster(options(), 1), training)).back();
    };
    page.text(fmt::format(
        "A number in bf16 has 8 bits: what changes a weight by less than a 512th of it "
        "is rounded away. So the optimizer has masters, copies of the weights in f32, "
        "which keep small updates until they add up to one that shows. After {} epochs "
        "the loss is {:.4f}; without masters it is {:.4f}.",
        longer.epochs, last_loss(true), last_loss(false)));
}

void GradientAccumulation::distribute(Page& page) {
    page.text(fmt::format(
        "Now give each part to a device of its own. All {} start from the same "
        "parameters, each computes the gradient of its part, and an all-reduce adds the "
        "gradients up, so that every device takes the same step. What accumulation adds "
        "up in time, data parallelism adds up in space; its code is accumulation's, and "
        "an all-reduce for each parameter.",
        parts_));
    page.quote("data-parallel");
    const RunReport together =
        train_wrongly(data_, even_shares(data_.rows(), parts_, parts_));
    record_variant(record(), "data_parallel", together);
    check_values(page, "data parallel against accumulation, largest relative difference",
                 parameter_difference(accumulation_, together), bound());
    if (has_numbers())
        page.check(
            Check::equal("devices whose parameters differ from device 0's in any bit",
                         replicas_that_differ(together), 0));
    if (!has_numbers()) return;
    page.text(
        options().dtype == DType::f64
            ? "In f64 what is left is rounding: sums of the same numbers in another "
              "order. The mathematics is the same."
            : fmt::format("Run this with --dtype f64: the difference shrinks by {} "
                          "digits, as rounding does. What stayed would be a mistake in "
                          "the mathematics.",
                          options().dtype == DType::f32 ? "nine" : "thirteen"));
}

void GradientAccumulation::average(Page& page) {
    page.text(
        fmt::format("The sum of {} batch means is {} times their mean. PyTorch's "
                    "DistributedDataParallel divides by the number of ranks; the code of "
                    "step 1 does not. The direction is the same, so the two agree when "
                    "the mean takes a learning rate {} times as large.",
                    parts_, parts_, parts_));
    const RunReport mean =
        train_together(data_, even_shares(data_.rows(), parts_, 1), parts_);
    check_values(
        page, fmt::format("mean with {} times the learning rate against the sum", parts_),
        parameter_difference(accumulation_, mean), bound());

    const Regression data =
        options().data ? data_ : regression_of(options(), std::int64_t{250} * parts_);
    page.text(
        fmt::format("Next {} rows on {} devices, dealt out evenly, averaged, against one "
                    "device that takes the whole batch at once.",
                    data.rows(), parts_));
    const RunReport whole = train_alone(data, even_shares(data.rows(), 1, 1));
    const RunReport shared = train_together(data, even_shares(data.rows(), parts_, 1));
    check_values(page,
                 fmt::format("{} rows over {} devices against one", data.rows(), parts_),
                 parameter_difference(whole, shared), bound());
    if (parts_ > 1 && data.rows() > parts_) average_unequal(page, data);
}

namespace {

/// Shares in the proportion 1 : 2 : 3 : …
std::vector<Share> unequal_shares(std::int64_t rows, int parts, bool by_rows) {
    std::vector<Share> shares;
    std::int64_t begin = 0;
    const std::int64_t spare = rows - parts;
    const std::int64_t all = std::int64_t{parts} * (parts + 1) / 2;
    for (int part = 0; part < parts; ++part) {
        const std::int64_t upto = std::int64_t{part + 1} * (part + 2) / 2;
        const std::int64_t end = part + 1 + spare * upto / all;
        const double weight =
            by_rows ? static_cast<double>(end - begin) / static_cast<double>(rows)
                    : 1.0 / parts;
        shares.push_back({begin, end - begin, weight});
        begin = end;
    }
    return shares;
}

}  // namespace

void GradientAccumulation::average_unequal(Page& page, const Regression& data) {
    const std::vector<Share> shares = unequal_shares(data.rows(), parts_, true);
    std::string sizes;
    for (const Share& share : shares)
        sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", share.count);
    page.text(
        fmt::format("Shares need not be equal. With {} rows a device, the mean of the "
                    "devices' means counts a row on the small share for more than one on "
                    "the large share. Weighted by B_i / B, each row counts the same.",
                    sizes));
    page.verbatim(
        "  mean over all rows = sum over devices of (B_i / B) * (mean over B_i rows)");
    const RunReport whole = train_alone(data, even_shares(data.rows(), 1, 1));
    const RunReport weighted = train_together(data, shares);
    const RunReport unweighted =
        train_wrongly(data, unequal_shares(data.rows(), parts_, false));
    check_values(page, "unequal shares, weighted mean, against one device",
                 parameter_difference(whole, weighted), bound());
    if (has_numbers())
        page.text(fmt::format(
            "The mean of means ends {:.1e} away, relatively: no rounding. Nothing hangs "
            "and no figure looks odd; lockstep's checker finds it all the same, as it "
            "does the sum that was meant as a mean (lessons/faults/F28.md and F21.md).",
            parameter_difference(whole, unweighted)));
}

namespace {

const RankReport& busiest(const RunReport& report) {
    return *std::max_element(report.ranks.begin(), report.ranks.end(),
                             [](const RankReport& a, const RankReport& b) {
                                 return a.memory.peak < b.memory.peak;
                             });
}

/// The gradients' all-reduces, one a parameter.
std::vector<CollectiveCall> gradient_reductions(const RunReport& report) {
    std::vector<CollectiveCall> calls;
    for (const auto& [name, tensor] : report.ranks.front().kept)
        if (name.starts_with("grad/"))
            calls.push_back({Verb::all_reduce, tensor.elements(),
                             bytes_of(tensor.dtype()),
                             static_cast<int>(report.ranks.size())});
    return calls;
}

/// "alpha 1 us, beta 10 GB/s"
std::string link_text(const LinkSpec& link) {
    const std::string rate = link.bytes_per_second > 0
                                 ? fmt::format("{:.4g} GB/s", link.bytes_per_second / 1e9)
                                 : "unlimited";
    return fmt::format("alpha {}, beta {}", time_text(picoseconds(link.alpha_seconds)),
                       rate);
}

/// Time, peak memory by category, and bytes sent of each run's busiest rank.
Table cost_table(const std::vector<std::pair<std::string, const RunReport*>>& runs) {
    Table table{{"of one device", "time", "parameters", "gradients", "optimizer",
                 "activations", "sent"},
                {}};
    for (const auto& [name, report] : runs) {
        const RankReport& rank = busiest(*report);
        const auto peak = [&](MemoryCategory category) {
            return bytes_text(
                rank.memory.category_peak[static_cast<std::size_t>(category)]);
        };
        table.rows.push_back(
            {name, time_text(report->makespan()), peak(MemoryCategory::parameters),
             peak(MemoryCategory::gradients), peak(MemoryCategory::optimizer),
             peak(MemoryCategory::activations), bytes_text(rank.bytes_sent())});
    }
    return table;
}

/// Asks for the bytes and the time of the all-reduces of a data-parallel
/// step, and holds the counted figures against the formulas.
void show_gradient_bytes(Page& page, const RunReport& report,
                         const LessonOptions& options) {
    const std::vector<CollectiveCall> calls = gradient_reductions(report);
    const int n = static_cast<int>(report.ranks.size());
    std::vector<int> members(static_cast<std::size_t>(n));
    std::iota(members.begin(), members.end(), 0);
    const ClusterSpec spec = load_cluster(options.cluster);
    const bool spaced = n > spec.devices_per_node;  // its ring crosses nodes
    std::int64_t elements = 0;
    std::int64_t bytes = 0;
    Picoseconds time = 0;
    for (const CollectiveCall& call : calls) {
        elements += call.count;
        bytes += collective_traffic(call, 0).bytes_sent;
        time += collective_time(call, spec, members);
    }
    const std::int64_t size = bytes_of(options.dtype);
    page.predict(
        fmt::format("The model has {} parameters of {} bytes. How many bytes does a "
                    "device send in one step over {} devices?",
                    count_text(elements), size, n),
        std::round(2.0 * (n - 1) / n * static_cast<double>(elements * size)), "bytes",
        fmt::format("2(n-1)/n * S = 2 * {}/{} * {} * {}", n - 1, n, elements, size));
    const RankReport& first = report.ranks.front();
    page.check(Check::equal(
        "bytes that device 0 sent against the formula, chunk by chunk",
        static_cast<double>(first.bytes_sent()), static_cast<double>(bytes)));
    if (!options.has_virtual_time()) {
        page.text(
            fmt::format("Its {} all-reduces took {} here. That is measured, so no "
                        "formula gives it to the last digit.",
                        calls.size(), time_text(first.time.communication)));
        return;
    }
    page.predict(
        fmt::format("And how long do its {} all-reduces take, in microseconds?",
                    calls.size()),
        static_cast<double>(time) / 1e6, "us",
        fmt::format("the sum over parameters of 2(n-1) * (alpha + chunk / beta), {} {}",
                    link_text(spaced ? spec.between : spec.inside),
                    spaced ? "between nodes" : "inside a node"));
    page.check(Check::equal("picoseconds of communication against the formula",
                            static_cast<double>(first.time.communication),
                            static_cast<double>(time)));
}

/// Says whether many devices are worth it: they are not if a step is short
/// and messages are slow.
std::string gain_text(const RunReport& whole, const RunReport& together) {
    const Picoseconds messages = together.ranks.front().time.communication;
    if (messages == 0 || together.makespan() < whole.makespan()) return "";
    return fmt::format(
        " Of its {} here the all-reduces take {}: a model this small gains nothing over "
        "the whole batch at once on one device, {}, where that fits.",
        time_text(together.makespan()), time_text(messages), time_text(whole.makespan()));
}

}  // namespace

/// A step of the language model with each way to split the batch.
void GradientAccumulation::measure(Page& page) {
    const auto task = std::make_shared<LanguageTask>(*language_);
    task->steps = 1;
    const auto whole_task = std::make_shared<LanguageTask>(*task);
    whole_task->micro_batch_rows = task->rows_per_step();
    whole_task->micro_batches = 1;

    const auto first_of_all = [](int) { return 0; };
    const auto own = [](int rank) { return rank; };
    const RunReport whole =
        train(*make_cluster(options(), 1, true),
              language_training(whole_task, options(), first_of_all, 1));
    const RunReport alone =
        train(*make_cluster(options(), 1, true),
              language_training(task, options(), first_of_all, parts_));
    Training training = language_training(task, options(), own, 1);
    training.data_parallel = true;
    const RunReport together = train(*make_cluster(options(), parts_, true), training);
    record().runs.emplace_back("step_whole", whole);
    record().runs.emplace_back("step_accumulation", alone);
    record().runs.emplace_back("step_data_parallel", together);
    record().titles = {
        {"step_whole", "one device, whole batch"},
        {"step_accumulation", fmt::format("one device, {} micro-batches", parts_)},
        {"step_data_parallel", fmt::format("data parallel on {} devices", parts_)}};

    page.text(fmt::format(
        "The results are the same; what differs is what they cost. Here is one step of "
        "the language model of step 6, {} rows, on {}: the whole batch at once, "
        "accumulation in {} parts, and {} devices. What stands before the first F in a "
        "picture mostly makes the model, which a longer run does once.",
        task->rows_per_step(),
        options().has_virtual_time() ? fmt::format("the {} cluster", options().cluster)
                                     : "this machine's GPUs",
        parts_, parts_));
    page.table(
        cost_table({{"whole batch at once", &whole},
                    {fmt::format("accumulation, {} parts", parts_), &alone},
                    {fmt::format("data parallel, {} devices", parts_), &together}}));
    page.chart(timeline_chart(alone, "accumulation"));
    page.chart(timeline_chart(together, "data parallel"));
    page.text(
        "Accumulation saves memory: activations of one part instead of all. It pays in "
        "time, as each part goes through the model by itself. Data parallelism saves "
        "that memory too, and has its parts go through at the same time; it pays in "
        "bytes." +
        gain_text(whole, together));
    show_gradient_bytes(page, together, options());
}

namespace {

constexpr std::int64_t kElements = 1000;

/// Every rank's buffer holds random values; all end with the sum.
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

void show_algorithms(Page& page, const ClusterSpec& spec) {
    page.text(fmt::format(
        "A ring is not always best: its 2(n-1) steps each pay the latency alpha. "
        "Recursive doubling takes lg n steps, but sends the whole buffer in each. "
        "Rabenseifner's halving and doubling takes 2 lg n steps and the ring's bytes. On "
        "this cluster's links inside a node ({}), by the alpha-beta model:",
        link_text(spec.inside)));
    page.verbatim(
        "  ring                2(n-1) alpha + 2(n-1)/n S/beta\n"
        "  recursive doubling  lg n alpha   + lg n S/beta\n"
        "  halving, doubling   2 lg n alpha + 2(n-1)/n S/beta");
    Table table{
        {"devices", "buffer", "ring", "recursive doubling", "halving, doubling", "wins"},
        {}};
    for (const int n : {4, 64}) {
        for (const std::int64_t bytes : {std::int64_t{1} << 10, std::int64_t{1} << 16,
                                         std::int64_t{1} << 20, std::int64_t{1} << 26}) {
            const double ring = ring_all_reduce_seconds(spec.inside, bytes, n);
            const double doubling = recursive_doubling_seconds(spec.inside, bytes, n);
            const double halving = halving_doubling_seconds(spec.inside, bytes, n);
            const char* winner = doubling < ring && doubling < halving
                                     ? "recursive doubling"
                                 : halving < ring  ? "halving, doubling"
                                 : halving == ring ? "none"
                                                   : "ring";
            table.rows.push_back({std::to_string(n), bytes_text(bytes),
                                  time_text(countable_picoseconds(ring)),
                                  time_text(countable_picoseconds(doubling)),
                                  time_text(countable_picoseconds(halving)), winner});
        }
    }
    page.table(table);
    page.text(
        "The model leaves out that halving and doubling talks to far neighbours, whose "
        "messages share links, and that a ring keeps to near ones. That is why rings "
        "carry the large buffers of real clusters.");
}

/// NCCL may add in another order than the ring.
void check_sums(Page& page, const RunReport& by_hand, const RunReport& built_in) {
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
    page.check(Check::at_most(
        "sums by hand against all_reduce's, largest relative difference", worst, bound));
}

/// Runs the all-reduce written by hand and the built-in one on the same buffers, compares
/// values, messages and bytes, and shows where which algorithm wins.
void show_ring(Page& page, const LessonOptions& options, int ranks, bool has_numbers) {
    const RunReport by_hand =
        make_cluster(options, ranks, true)->run(reduce_with(true, options));
    const RunReport built_in =
        make_cluster(options, ranks)->run(reduce_with(false, options));
    page.chart(timeline_chart(
        by_hand, fmt::format("{} elements round a ring of {}", kElements, ranks)));

    const RankReport& first = by_hand.ranks.front();
    page.predict(fmt::format("How many messages does each of {} devices send?", ranks),
                 2.0 * (ranks - 1), "messages",
                 fmt::format("2(n-1) = 2 * {}", ranks - 1));
    page.check(Check::equal("messages that device 0 sent",
                            static_cast<double>(first.messages_sent()),
                            2.0 * (ranks - 1)));
    std::int64_t byte_gap = 0;
    std::int64_t message_gap = 0;
    double values = 0;
    for (std::size_t rank = 0; rank < by_hand.ranks.size(); ++rank) {
        const RankReport& mine = by_hand.ranks[rank];
        const RankReport& theirs = built_in.ranks[rank];
        byte_gap += std::abs(mine.bytes_sent() - theirs.bytes_sent());
        message_gap += std::abs(mine.messages_sent() - theirs.messages_sent());
        if (has_numbers && !(mine.kept.at("sum") == theirs.kept.at("sum"))) values += 1;
    }
    page.check(Check::equal("bytes by hand less bytes of all_reduce, over all devices",
                            static_cast<double>(byte_gap), 0));
    page.check(Check::equal("messages by hand less messages of all_reduce",
                            static_cast<double>(message_gap), 0));
    if (has_numbers && options.has_virtual_time())
        page.check(Check::equal("devices whose sums differ from all_reduce's in any bit",
                                values, 0));
    else if (has_numbers)
        check_sums(page, by_hand, built_in);
    show_algorithms(page, load_cluster(options.cluster));
}

}  // namespace

void GradientAccumulation::ring(Page& page) {
    page.text(
        fmt::format("How does an all-reduce work? Cut the buffer into {} chunks. Each "
                    "chunk travels round the ring of devices, gathering every device's "
                    "part; then the finished chunks travel round once more. Nobody waits "
                    "for one busy root, and every link carries the same load.",
                    parts_));
    page.quote("ring-reduce-scatter");
    page.quote("ring-all-gather");
    show_ring(page, options(), parts_, has_numbers());
}

void GradientAccumulation::read_text(Page& page) {
    const std::shared_ptr<const LanguageTask> task = language_;
    page.text(
        fmt::format("A model that predicts the next character from the {} before: "
                    "embedding of {}, hidden layer of {}, softmax over the {} different "
                    "characters of a text of {}. Each step takes {} rows from it; one "
                    "device accumulates them in {} parts, {} devices take a part each.",
                    task->sizes.context, task->sizes.width, task->sizes.hidden,
                    task->sizes.vocabulary,
                    count_text(static_cast<std::int64_t>(task->text.ids.size())),
                    task->rows_per_step(), parts_, parts_));
    page.quote("train-step");
    page.quote("training-program");

    const RunReport alone = train(*make_cluster(options(), 1),
                                  language_training(
                                      task, options(), [](int) { return 0; }, parts_),
                                  page.progress("one device", task->steps).get());
    Training training = language_training(
        task, options(), [](int rank) { return rank; }, 1);
    training.data_parallel = true;
    const RunReport together = train(*make_cluster(options(), parts_), training,
                                     page.progress("many devices", task->steps).get());
    record_variant(record(), "language_model_accumulation", alone);
    record_variant(record(), "language_model_data_parallel", together);
    record_language_inputs(record(), *task);
    record_initial(record(), "language_model", alone);

    const std::vector<double> one = losses_of(alone);
    const std::vector<double> many = losses_of(together);
    show_curve(page, one, many);
    double widest = 0;
    for (std::size_t step = 0; step < one.size(); ++step) {
        const double gap = std::abs(one[step] - many[step]);
        // A NaN stays, whatever comes after it.
        if (std::isnan(gap) || gap > widest) widest = gap;
    }
    // Of the hidden layer, beside those of a linear one: sum, tanh, and their gradients.
    constexpr int kStoresOfHiddenLayer = 4;
    check_values(
        page, "largest difference of the two losses at any step", widest,
        loss_bound(options().dtype, stores() + kStoresOfHiddenLayer, one, {1e-4, 1e-4}));
    const double entropy = unigram_entropy(task->text);
    double last = 0;
    const std::size_t window = std::min<std::size_t>(one.size(), 20);
    for (std::size_t i = one.size() - window; i < one.size(); ++i)
        last += one[i] / static_cast<double>(window);
    page.text(fmt::format(
        "Drawn by frequency alone, a character of this text carries {:.3f} nats: its "
        "unigram entropy. A model below that has learnt from the characters before.",
        entropy));
    if (task->steps >= 400)
        check_values(page, "mean loss of the last 20 steps over the unigram entropy",
                     last / entropy, 0.9);
}

void GradientAccumulation::show_curve(Page& page, const std::vector<double>& alone,
                                      const std::vector<double>& together) {
    if (!has_numbers()) return;
    Table table{{"step", "one device", fmt::format("{} devices", parts_)}, {}};
    for (std::size_t i = 0; i <= 8; ++i) {
        const std::size_t step = (alone.size() - 1) * i / 8;
        if (i > 0 && step == (alone.size() - 1) * (i - 1) / 8) continue;
        table.rows.push_back({std::to_string(step + 1),
                              fmt::format("{:.3f}", alone[step]),
                              fmt::format("{:.3f}", together[step])});
    }
    page.table(table);
}

namespace {

/// Runs an all-reduce of that many elements on `ranks` devices of the classroom.
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

/// Three questions for a pencil, each answered by a run.
void show_predictions(Page& page) {
    constexpr std::int64_t kParameters = 1'000'000;
    const RunReport eight = reduce_in_classroom(8, kParameters);
    page.predict(
        "A model of 1,000,000 f32 parameters is trained on 8 devices. Bytes that each "
        "device sends a step?",
        static_cast<double>(eight.ranks.front().bytes_sent()), "bytes",
        "2 * 7/8 * 4,000,000");
    page.predict("How long does that all-reduce take, in microseconds?",
                 static_cast<double>(eight.makespan()) / 1e6, "us",
                 "2 * 7 * (1 us + 500,000 B / (10 GB/s)) = 14 * 51 us");
    const RunReport two = reduce_in_classroom(2, kParameters);
    page.predict("And on 2 devices?", static_cast<double>(two.makespan()) / 1e6, "us",
                 "2 * 1 * (1 us + 2,000,000 B / (10 GB/s)) = 2 * 201 us");
    page.check(Check::equal("bytes against 2(n-1)/n S",
                            static_cast<double>(eight.ranks.front().bytes_sent()), 7e6));
    page.check(Check::equal("picoseconds against 2(n-1)(alpha + S/n beta)",
                            static_cast<double>(eight.makespan()), 714e6));
    page.text(
        "Four times the devices, but not twice the time: what a device sends grows from "
        "S to almost 2 S and stays there. Only the latency goes on growing with n.");
}

}  // namespace

void GradientAccumulation::predict(Page& page) {
    page.text(
        "Now you. Three questions about a larger run, with a pencil; then look. The "
        "cluster is `classroom`: a message of b bytes takes 1 us + b / (10 GB/s) inside "
        "a node of 8 devices.");
    show_predictions(page);
}

}  // namespace lockstep::lessons
