#include "lessons/01_gradient_accumulation/cost_step.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "lessons/01_gradient_accumulation/gradient_accumulation.hpp"
#include "src/core/units.hpp"
#include "src/cost/collectives.hpp"

namespace lockstep::lessons {

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

}  // namespace

std::string link_text(const LinkSpec& link) {
    const std::string rate =
        link.bytes_per_second > 0
            ? fmt::format("{:.4g} GB/s", link.bytes_per_second / 1e9)
            : "unlimited";
    return fmt::format("alpha {}, beta {}",
                       time_text(picoseconds(link.alpha_seconds)), rate);
}

Table cost_table(
    const std::vector<std::pair<std::string, const RunReport*>>& runs) {
    Table table{{"of one device", "time", "parameters", "gradients",
                 "optimizer", "activations", "sent"},
                {}};
    for (const auto& [name, report] : runs) {
        const RankReport& rank = busiest(*report);
        const auto peak = [&](MemoryCategory category) {
            return bytes_text(rank.memory.category_peak[category]);
        };
        table.rows.push_back({name, time_text(report->makespan()),
                              peak(MemoryCategory::parameters),
                              peak(MemoryCategory::gradients),
                              peak(MemoryCategory::optimizer),
                              peak(MemoryCategory::activations),
                              bytes_text(rank.bytes_sent())});
    }
    return table;
}

void show_gradient_bytes(Page& page, const RunReport& report,
                         const LessonOptions& options) {
    const std::vector<CollectiveCall> calls = gradient_reductions(report);
    const int n = static_cast<int>(report.ranks.size());
    std::vector<int> members(static_cast<std::size_t>(n));
    std::iota(members.begin(), members.end(), 0);
    const ClusterSpec spec = load_cluster(options.cluster);
    const bool spaced =
        n > spec.devices_per_node;  // its ring crosses nodes
    std::int64_t elements = 0;
    std::int64_t bytes = 0;
    Picoseconds time = 0;
    for (const CollectiveCall& call : calls) {
        elements += call.count;
        bytes += collective_traffic(call, 0).bytes_sent;
        time += collective_time(call, spec, members);
    }
    const std::int64_t size = bytes_of(options.dtype);
    page.predict(fmt::format("The model has {} parameters of {} bytes. How "
                             "many bytes does a device send in one step "
                             "over {} devices?",
                             count_text(elements), size, n),
                 std::round(2.0 * (n - 1) / n *
                            static_cast<double>(elements * size)),
                 "bytes",
                 fmt::format("2(n-1)/n * S = 2 * {}/{} * {} * {}", n - 1, n,
                             elements, size));
    const RankReport& first = report.ranks.front();
    page.check(Check::equal(
        "bytes that device 0 sent against the formula, chunk by chunk",
        static_cast<double>(first.bytes_sent()),
        static_cast<double>(bytes)));
    if (!options.has_virtual_time()) {
        page.text(fmt::format(
            "Its {} all-reduces took {} here. That is measured, so no "
            "formula gives it to the last digit.",
            calls.size(), time_text(first.time.communication)));
        return;
    }
    page.predict(
        fmt::format(
            "And how long do its {} all-reduces take, in microseconds?",
            calls.size()),
        static_cast<double>(time) / 1e6, "us",
        fmt::format("the sum over parameters of 2(n-1) * (alpha + chunk / "
                    "beta), {} {}",
                    link_text(spaced ? spec.between : spec.inside),
                    spaced ? "between nodes" : "inside a node"));
    page.check(
        Check::equal("picoseconds of communication against the formula",
                     static_cast<double>(first.time.communication),
                     static_cast<double>(time)));
}

namespace {

/// Whether many devices are worth it, where the step is short and messages
/// are not.
std::string gain_text(const RunReport& whole, const RunReport& together) {
    const Picoseconds messages = together.ranks.front().time.communication;
    if (messages == 0 || together.makespan() < whole.makespan()) return "";
    return fmt::format(
        " Of its {} here the all-reduces take {}: a model this small gains "
        "nothing over the whole batch at once on one device, {}, where "
        "that fits.",
        time_text(together.makespan()), time_text(messages),
        time_text(whole.makespan()));
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
    const RunReport together =
        train(*make_cluster(options(), parts_, true), training);
    record().runs.emplace_back("step_whole", whole);
    record().runs.emplace_back("step_accumulation", alone);
    record().runs.emplace_back("step_data_parallel", together);

    page.text(fmt::format(
        "The results are the same; what differs is what they cost. Here is "
        "one step of the language model of step 6, {} rows, on {}: "
        "the whole batch at once, accumulation in {} parts, and "
        "{} devices. What stands before the first F in a picture mostly "
        "makes the model, which a longer run does once.",
        task->rows_per_step(),
        options().has_virtual_time()
            ? fmt::format("the {} cluster", options().cluster)
            : "this machine's GPUs",
        parts_, parts_));
    page.table(cost_table(
        {{"whole batch at once", &whole},
         {fmt::format("accumulation, {} parts", parts_), &alone},
         {fmt::format("data parallel, {} devices", parts_), &together}}));
    page.timeline("accumulation", alone);
    page.timeline("data parallel", together);
    page.text(
        "Accumulation saves memory: activations of one part instead of "
        "all. It pays in time, as each part goes through the model by "
        "itself. Data parallelism saves that memory too, and has its parts "
        "go through at the same time; it pays in bytes." +
        gain_text(whole, together));
    show_gradient_bytes(page, together, options());
}

}  // namespace lockstep::lessons
