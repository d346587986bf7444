#include "lessons/assignments/mesh/grading/choice.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "lessons/assignments/mesh/grading/training.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/device/operations/optimizer.hpp"

namespace lockstep::lessons::mesh {

namespace {

// a11.2: a mesh for a model and a cluster.

NamedSetting setting_of(const Judge& judge, Kind kind) {
    const auto draw = [&](const char* what, std::int64_t low, std::int64_t high) {
        return judge.draw(fmt::format("{} {}", name_of(kind), what), low, high);
    };
    const std::vector<NamedSetting> variants =
        variants_of(kind, {static_cast<double>(draw("network", 100, 130)) / 100,
                           16 * draw("vocabulary", 1, 120)});
    return variants.at(draw("setting", 0, std::ssize(variants) - 1));
}

/// The three sizes deal out what there is equally.
void ask_equal(Judge& judge, const NamedSetting& of, const MeshShape& shape) {
    const auto ask = [&](std::int64_t count, const char* what, int by, const char* axis) {
        judge.ask(count % by == 0,
                  fmt::format("{}: {} divides the {} {}", of.name, axis, count, what),
                  text_of(shape.axes()));
    };
    const GptSizes& sizes = of.setting.sizes;
    ask(of.setting.sequences, "sequences", shape.size("dp"), "dp");
    ask(sizes.context, "tokens", 2 * shape.size("cp"), "2 cp");
    ask(sizes.block.heads, "heads", shape.size("tp"), "tp");
    ask(sizes.block.attention().key_heads(), "heads of keys and values", shape.size("tp"),
        "tp");
}

/// Returns what choose() gave, once it is a mesh of all devices.
Axes chosen(Judge& judge, const NamedSetting& of) {
    const RankTask task{"choose", {}, numbers_of(of.setting)};
    const TaskResult& result = judge.run({of.name, {task}});
    const auto left = result.ranks.front().texts.find("axes");
    const std::string text = left == result.ranks.front().texts.end() ? "" : left->second;
    const std::string asked =
        fmt::format("{}: dp, cp and tp, once each, of {} devices together", of.name,
                    of.setting.devices);
    try {
        const MeshShape shape = read_mesh_shape(text);
        const bool is_mesh = shape.axes().size() == 3 && shape.has("dp") &&
                             shape.has("cp") && shape.has("tp") &&
                             shape.ranks() == of.setting.devices;
        judge.ask(is_mesh, asked, is_mesh ? text_of(shape.axes()) : shape.text());
        ask_equal(judge, of, shape);
        return shape.axes();
    } catch (const UsageError& error) {
        throw Judge::No{Mark::failed, asked, text.empty() ? "no axes" : text,
                        text.empty() ? "" : error.what()};
    }
}

/// The same mesh, with a small GPT, whose numbers can be looked at.
MeshCase twin_of(const Judge& judge, const NamedSetting& of, const Axes& axes) {
    const int replicas = MeshShape(axes).size("dp");
    MeshCase twin = small_case(judge, axes, replicas > 1 ? replicas + 1 : 1);
    twin.job.sizes.context = 64;
    twin.job.sizes.block.heads = 16;
    twin.job.sizes.block.hidden = 32;
    if (of.setting.sizes.block.kv_heads > 0)
        twin.job.sizes.block.kv_heads = of.setting.sizes.block.kv_heads;
    twin.job.by_sgd = true;
    return twin;
}

/// A step of what is drawn for grading, with shapes only.
struct Step {
    NamedSetting of;
    MeshCase step;
    const RunReport& report;
};

Step run_step(Judge& judge, Kind kind) {
    const NamedSetting of = setting_of(judge, kind);
    Judge asking = judge;  // what is asked before is not told where figures are asked
    const Axes axes = chosen(asking, of);
    judge_right_on(asking, twin_of(judge, of, axes));
    const MeshCase step = step_of(of.setting, axes);
    TaskRun asked{of.name + ", " + text_of(axes), {}, roomy(of.setting), false};
    asked.ranks.assign(static_cast<std::size_t>(step.ranks()),
                       {"train " + name_of(kind), {}, given_numbers(step)});
    return {of, step, judge.run(asked).report};
}

std::string gigabytes(std::int64_t bytes) {
    return fmt::format("{:.1f} GB", static_cast<double>(bytes) * 1e-9);
}

/// Returns what all devices send for the gradient and new values: neither along tp, nor
/// from neighbour to neighbour along cp, as attention does.
double sent_for_gradients(const RunReport& report) {
    double sent = 0;
    for (const RankReport& rank : report.ranks)
        for (const Traffic& traffic : rank.traffic) {
            const bool is_of_attention =
                traffic.group == "cp" &&
                (traffic.verb == "send" || traffic.verb == "all_to_all");
            if (traffic.group != "tp" && !is_of_attention)
                sent += static_cast<double>(traffic.bytes_sent);
        }
    return sent;
}

/// Returns the bytes that all devices read and write for updates.
double moved_for_updates(const RunReport& report) {
    double bytes = 0;
    for (const TraceEvent& event : report.trace)
        if (event.name == ops::AdamW::kName) bytes += static_cast<double>(event.bytes);
    return bytes;
}

double state_of(const RunReport& report) {
    return static_cast<double>(peaks_of(report, MemoryCategory::optimizer));
}

double flops_of(const RunReport& report) {
    double flops = 0;
    for (const RankReport& rank : report.ranks)
        flops += static_cast<double>(rank.flops);
    return flops;
}

/// With shapes only there are no numbers to look at: it has to be as much work as a step.
/// An update reads and writes all of the optimizer's state.
void ask_whole(Judge& judge, const Step& step) {
    const RunReport usual = run_library(step.step, roomy(step.of.setting));
    const auto ask = [&](const char* what, double own, double expected) {
        constexpr double kLess = 0.95;
        const double least = kLess * expected;
        if (own < least)
            judge.ask(false,
                      fmt::format("{}: {}: {}: at least {:.3g}", step.of.name,
                                  text_of(step.step.axes), what, least),
                      fmt::format("{:.3g}", own),
                      "a step of training takes more than that");
    };
    const RunReport& own = step.report;
    ask("flops of all devices", flops_of(own), flops_of(usual));
    ask("bytes of the optimizer's state on all devices", state_of(own), state_of(usual));
    ask("bytes that updates move on all devices", moved_for_updates(own),
        2 * state_of(usual));
    ask("bytes sent for gradients and new values by all devices", sent_for_gradients(own),
        sent_for_gradients(usual));
}

std::string memory_cause(const MemoryReport& memory) {
    std::string held;
    for (int i = 0; i < kMemoryCategories; ++i) {
        const auto category = static_cast<MemoryCategory>(i);
        const std::int64_t bytes = memory.at_peak.at(static_cast<std::size_t>(i));
        if (bytes > memory.peak / 50)
            held += fmt::format("{}{} {}", held.empty() ? "" : ", ", name_of(category),
                                gigabytes(bytes));
    }
    return fmt::format(
        "at its peak it holds {}. Along tp ranks share out parameters, gradients and the "
        "optimizer's state, and activations within layers; along cp all activations; "
        "along dp sequences, which are held one after another. The optimizer's state is "
        "shared out along dp and cp if your program does so",
        held);
}

}  // namespace

void judge_fits(Judge& judge, Kind kind) {
    needs(judge, "a11.1-gradients", judge_gradients);
    const Step step = run_step(judge, kind);
    ask_whole(judge, step);
    const std::int64_t most = step.of.setting.cluster.memory_bytes;
    for (std::size_t rank = 0; rank < step.report.ranks.size(); ++rank) {
        const MemoryReport& memory = step.report.ranks[rank].memory;
        const bool fits = memory.peak <= most;
        judge.ask(fits,
                  fmt::format("{}: {}: device {} holds at most {}", step.of.name,
                              text_of(step.step.axes), rank, gigabytes(most)),
                  gigabytes(memory.peak), fits ? "" : memory_cause(memory));
    }
}

namespace {

/// Returns the most bytes that a device sends within its node, under "", and to other
/// nodes, by communicator.
std::map<std::string, std::int64_t> most_sent(const RunReport& report) {
    std::map<std::string, std::int64_t> most;
    for (const RankReport& rank : report.ranks) {
        std::map<std::string, std::int64_t> own;
        for (const Traffic& traffic : rank.traffic)
            own[traffic.between_nodes ? traffic.group : ""] += traffic.bytes_sent;
        for (const auto& [group, bytes] : own)
            most[group] = std::max(most[group], bytes);
    }
    return most;
}

/// What devices do in that time.
std::string time_cause(const Step& step) {
    const auto least_and_most = [&](Picoseconds TimeReport::*part) {
        const auto [least, most] = std::ranges::minmax_element(
            step.report.ranks, {},
            [&](const RankReport& rank) { return rank.time.*part; });
        const std::string from = time_text(least->time.*part);
        const std::string to = time_text(most->time.*part);
        return from == to ? to : fmt::format("{} to {}", from, to);
    };
    const auto sent = most_sent(step.report);
    std::string between;
    for (const auto& [group, bytes] : sent)
        if (bytes > 0 && !group.empty())
            between += fmt::format("{}{} over {}", between.empty() ? "" : ", ",
                                   gigabytes(bytes), group);
    const ClusterSpec& cluster = step.of.setting.cluster;
    return fmt::format(
        "devices compute for {} of it, and stand still for {} until messages have come. "
        "One sends up to {} to devices of its node ({:.3g} GB/s), and to those of other "
        "nodes ({:.3g} GB/s) {}",
        least_and_most(&TimeReport::compute), least_and_most(&TimeReport::waiting),
        gigabytes(sent.contains("") ? sent.at("") : 0),
        cluster.inside.bytes_per_second * 1e-9, cluster.between.bytes_per_second * 1e-9,
        between.empty() ? "nothing" : between);
}

/// The time of the best mesh, which is looked for once.
Picoseconds best_time(const NamedSetting& of) {
    static std::map<std::string, Picoseconds> known;
    const auto found = known.find(of.name);
    if (found != known.end()) return found->second;
    const std::vector<Tried> meshes = fitting_meshes(of.setting);
    if (meshes.empty())
        throw MissingError(
            fmt::format("mesh: {}: nothing fits, as drawn; grade again", of.name));
    return known.emplace(of.name, meshes.front().report.makespan()).first->second;
}

}  // namespace

void judge_time(Judge& judge, Kind kind, int percent) {
    const Step step = run_step(judge, kind);
    const Picoseconds best = best_time(step.of);
    const Picoseconds most = best + best / 100 * percent;
    const Picoseconds taken = step.report.makespan();
    judge.ask(taken <= most,
              fmt::format("{}: a step takes at most {} of virtual time, {} % more than "
                          "the library's program on its best mesh",
                          step.of.name, time_text(most), percent),
              fmt::format("{} on {}", time_text(taken), text_of(step.step.axes)),
              taken <= most ? "" : time_cause(step));
}

}  // namespace lockstep::lessons::mesh
