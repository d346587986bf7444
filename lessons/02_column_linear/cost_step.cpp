#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "lessons/02_column_linear/column_linear.hpp"
#include "src/core/units.hpp"
#include "src/cost/collectives.hpp"

namespace lockstep::lessons {

namespace {

/// The collectives of the two halves of a pass.
struct Calls {
    std::vector<CollectiveCall> forward, backward;
};

Calls calls_of(const MlpSizes& sizes, MlpSplit split, DType dtype,
               int ranks) {
    const auto call = [&](Verb verb, std::int64_t columns) {
        // An all-gather's count is that of one rank's part.
        const int parts = verb == Verb::all_gather ? ranks : 1;
        return CollectiveCall{verb, sizes.rows * columns / parts,
                              bytes_of(dtype), ranks};
    };
    if (split == MlpSplit::columns_then_rows)
        return {{call(Verb::all_reduce, sizes.hidden)},
                {call(Verb::all_reduce, sizes.hidden)}};
    return {{call(Verb::all_gather, sizes.inner),
             call(Verb::all_gather, sizes.hidden)},
            {call(Verb::all_reduce, sizes.inner),
             call(Verb::all_reduce, sizes.hidden)}};
}

std::int64_t bytes_of_calls(const std::vector<CollectiveCall>& calls,
                            int rank) {
    std::int64_t bytes = 0;
    for (const CollectiveCall& call : calls)
        bytes += collective_traffic(call, rank).bytes_sent;
    return bytes;
}

/// Bytes counted less bytes by the formula, over all ranks and both halves.
std::int64_t byte_gap(const RunReport& report, const Calls& calls) {
    std::int64_t gap = 0;
    for (int rank = 0; rank < static_cast<int>(report.ranks.size());
         ++rank) {
        const std::int64_t forward = bytes_of_half(report, rank, "forward");
        const std::int64_t backward =
            bytes_of_half(report, rank, "backward");
        gap +=
            std::abs(forward - bytes_of_calls(calls.forward, rank)) +
            std::abs(backward - bytes_of_calls(calls.backward, rank)) +
            std::abs(report.ranks[rank].bytes_sent() - forward - backward);
    }
    return gap;
}

std::vector<std::string> cost_row(const std::string& name,
                                  const RunReport& report) {
    const RankReport& first = report.ranks.front();
    constexpr auto kActivations =
        static_cast<std::size_t>(MemoryCategory::activations);
    return {name, bytes_text(bytes_of_half(report, 0, "forward")),
            bytes_text(bytes_of_half(report, 0, "backward")),
            time_text(pass_time(report)),
            bytes_text(first.memory.category_peak[kActivations])};
}

}  // namespace

void ColumnLinear::count_bytes(Page& page) {
    const Task task = mlp_task(sizes_, MlpSplit::gathered, options().dtype,
                               options().seed);
    const RunReport gathered = pass_together(task, true);
    record().runs.emplace_back("mlp_gathered", gathered);
    for (const auto& [name, tensor] : results(gathered, task))
        record().outputs.insert_or_assign("mlp_gathered/" + name, tensor);

    page.text(
        "What do these two messages cost, and what would it cost to put "
        "columns together instead? Let both layers be by columns, each "
        "with an all-gather of its output. The result is as right:");
    page.quote("gathered-mlp");
    const Task alone =
        mlp_task(sizes_, MlpSplit::none, options().dtype, options().seed);
    check_bound(page,
                "gathered, y, dx and gradients against one device, largest "
                "relative difference",
                largest_difference(results(gathered, task),
                                   results(mlp_alone_, alone)));
    page.text(fmt::format(
        "With S the bytes of x, {}, and I those between the layers, {}, a "
        "device sends:",
        bytes_text(task.x.bytes()),
        bytes_text(sizes_.rows * sizes_.inner *
                   bytes_of(options().dtype))));
    page.verbatim(
        "                             forward           backward\n"
        "  columns, rows              2(t-1)/t S        2(t-1)/t S\n"
        "  columns, gather, columns   (t-1)/t (I + S)   2(t-1)/t (I + S)");
    show_bytes(page, gathered);
    show_time(page, gathered);
    show_larger_layers(page);
}

void ColumnLinear::show_bytes(Page& page, const RunReport& gathered) {
    const std::int64_t size = bytes_of(options().dtype);
    const std::int64_t s = sizes_.rows * sizes_.hidden * size;
    const std::int64_t i = sizes_.rows * sizes_.inner * size;
    const auto in_pair = static_cast<double>(sent(4, s));
    const auto gathering = static_cast<double>(sent(3, i + s));
    page.predict(
        "Columns, then rows: how many bytes does a device send in a "
        "forward and a backward?",
        in_pair, "bytes",
        fmt::format("4(t-1)/t * S = 4 * {}/{} * {}", ranks_ - 1, ranks_,
                    s));
    page.predict("And with gathering?", gathering, "bytes",
                 fmt::format("3(t-1)/t * (I + S) = 3 * {}/{} * ({} + {})",
                             ranks_ - 1, ranks_, i, s));
    page.check(Check::equal(
        "columns, rows: bytes that device 0 sent",
        static_cast<double>(mlp_together_.ranks.front().bytes_sent()),
        in_pair));
    page.check(Check::equal(
        "columns, gather, columns: bytes that device 0 sent",
        static_cast<double>(gathered.ranks.front().bytes_sent()),
        gathering));
    const auto calls = [&](MlpSplit split) {
        return calls_of(sizes_, split, options().dtype, ranks_);
    };
    page.check(Check::equal(
        "bytes counted less bytes by formula, of all devices, halves and "
        "ways",
        static_cast<double>(
            byte_gap(mlp_together_, calls(MlpSplit::columns_then_rows)) +
            byte_gap(gathered, calls(MlpSplit::gathered))),
        0));
}

void ColumnLinear::show_time(Page& page, const RunReport& gathered) {
    Table table{{"of one device", "sent forward", "sent backward", "time",
                 "activations"},
                {}};
    table.rows = {cost_row("one device alone", mlp_alone_),
                  cost_row("columns, rows", mlp_together_),
                  cost_row("columns, gather, columns", gathered)};
    page.table(table);
    page.timeline("columns, rows", mlp_together_);
    page.timeline("columns, gather, columns", gathered);
    page.text(
        "Time is from the begin of F to the end of B; what stands before "
        "makes the model. Backward, an all-reduce starts as soon as dx is "
        "there, and the weight's gradient is made meanwhile.");
    if (!options().has_virtual_time()) return;
    const ClusterSpec spec = load_cluster(options().cluster);
    std::vector<int> members(static_cast<std::size_t>(ranks_));
    std::iota(members.begin(), members.end(), 0);
    Picoseconds time = 0;
    const Calls calls = calls_of(sizes_, MlpSplit::columns_then_rows,
                                 options().dtype, ranks_);
    for (const auto& half : {calls.forward, calls.backward})
        for (const CollectiveCall& call : half)
            time += collective_time(call, spec, members);
    page.check(Check::equal(
        "columns, rows: picoseconds of messages against 2 * 2(t-1) (alpha "
        "+ S/(t beta))",
        static_cast<double>(mlp_together_.ranks.front().time.communication),
        static_cast<double>(time)));
}

namespace {

/// Time of a pass on virtual devices that compute shapes only, and have
/// memory for it.
Picoseconds virtual_time(const LessonOptions& options,
                         const MlpSizes& sizes, MlpSplit split, int ranks) {
    sim::ClusterOptions cluster;
    cluster.ranks = ranks;
    cluster.spec = load_cluster(options.cluster);
    cluster.spec.memory_bytes = 0;
    cluster.numbers = false;
    cluster.trace = true;
    cluster.check = sim::CheckLevel::cheap;
    return pass_time(pass(*sim::make_cluster(std::move(cluster)),
                          mlp_shapes(sizes, split, options.dtype)));
}

}  // namespace

void ColumnLinear::show_larger_layers(Page& page) {
    page.text(fmt::format(
        "Arithmetic grows with rows * hidden * inner, bytes with rows * "
        "hidden. So messages matter less, the wider the layer. The same "
        "pass of wider MLPs on virtual devices of {}, shapes only:",
        options().cluster));
    Table table{{"hidden", "one device", "columns, rows", "gain",
                 "columns, gather, columns", "gain"},
                {}};
    for (const std::int64_t factor : {1, 4, 16}) {
        const MlpSizes sizes{sizes_.rows, factor * sizes_.hidden,
                             factor * sizes_.inner};
        const Picoseconds alone =
            virtual_time(options(), sizes, MlpSplit::none, 1);
        std::vector<std::string> row{std::to_string(sizes.hidden),
                                     time_text(alone)};
        for (const MlpSplit split :
             {MlpSplit::columns_then_rows, MlpSplit::gathered}) {
            const Picoseconds time =
                virtual_time(options(), sizes, split, ranks_);
            row.push_back(time_text(time));
            row.push_back(
                time > 0
                    ? fmt::format("{:.2f}", static_cast<double>(alone) /
                                                static_cast<double>(time))
                    : "-");
        }
        table.rows.push_back(row);
    }
    page.table(table);
}

}  // namespace lockstep::lessons
