#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/mesh/grading/settings.hpp"
#include "lessons/assignments/mesh/grading/training.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/device/operations/optimizer.hpp"

namespace lockstep::lessons {

namespace {

using namespace mesh;

// a11.2: the mesh that choose() chose, and a step of train() on it.

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
void ask_equal(Judge& judge, const NamedSetting& drawn, const MeshShape& shape) {
    const auto ask = [&](std::int64_t count, const char* what, int by, const char* axis) {
        judge.ask(count % by == 0,
                  fmt::format("{}: {} divides the {} {}", drawn.name, axis, count, what),
                  text_of(shape.axes()));
    };
    const GptSizes& sizes = drawn.setting.sizes;
    ask(drawn.setting.sequences, "sequences", shape.size("dp"), "dp");
    ask(sizes.context, "tokens", 2 * shape.size("cp"), "2 cp");
    ask(sizes.block.heads, "heads", shape.size("tp"), "tp");
    ask(sizes.block.attention().key_heads(), "heads of keys and values", shape.size("tp"),
        "tp");
}

/// Returns what choose() gave, once it is a mesh of all devices.
Axes chosen(Judge& judge, const NamedSetting& drawn) {
    const RankTask task{"choose", {}, numbers_of(drawn.setting)};
    const auto& texts = judge.run({drawn.name, {task}}).ranks.front().texts;
    const std::string text = texts.contains("axes") ? texts.at("axes") : "";
    const std::string asked =
        fmt::format("{}: dp, cp and tp, once each, of {} devices together", drawn.name,
                    drawn.setting.devices);
    try {
        const MeshShape shape = read_mesh_shape(text);
        const bool is_mesh = shape.axes().size() == 3 && shape.has("dp") &&
                             shape.has("cp") && shape.has("tp") &&
                             shape.ranks() == drawn.setting.devices;
        judge.ask(is_mesh, asked, is_mesh ? text_of(shape.axes()) : shape.text());
        ask_equal(judge, drawn, shape);
        return shape.axes();
    } catch (const UsageError& error) {
        throw Judge::No{Mark::failed, asked, text.empty() ? "no axes" : text,
                        text.empty() ? "" : error.what()};
    }
}

/// The same mesh, with a small GPT, whose numbers can be looked at.
MeshCase twin_of(const Judge& judge, const NamedSetting& drawn, const Axes& axes) {
    const int replicas = MeshShape(axes).size("dp");
    MeshCase twin = small_case(judge, axes, replicas > 1 ? replicas + 1 : 1);
    twin.job.sizes.context = 64;
    twin.job.sizes.block.heads = 16;
    twin.job.sizes.block.hidden = 32;
    if (drawn.setting.sizes.block.kv_heads > 0)
        twin.job.sizes.block.kv_heads = drawn.setting.sizes.block.kv_heads;
    twin.job.by_sgd = true;
    return twin;
}

/// A step of what is drawn for grading, with shapes only.
struct Step {
    NamedSetting drawn;
    Axes axes;
    TaskRun run;
    const RunReport& report;
};

Step run_step(Judge& judge, Kind kind) {
    const NamedSetting drawn = setting_of(judge, kind);
    Judge asking = judge;  // what is asked before is not told where figures are asked
    const Axes axes = chosen(asking, drawn);
    judge_gradients_of(asking, twin_of(judge, drawn, axes));
    const MeshCase step = step_of(drawn.setting, axes);
    TaskRun run{drawn.name + ", " + text_of(axes), {}, roomy(drawn.setting), false};
    run.ranks.assign(static_cast<std::size_t>(step.ranks()),
                     {"train " + name_of(kind), {}, step.numbers()});
    return {drawn, axes, run, judge.run(run).report};
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
    const RunReport& usual = judge.right(step.run).report;
    const auto ask = [&](const char* what, double own, double expected) {
        constexpr double kLess = 0.95;
        const double least = kLess * expected;
        if (own < least)
            judge.ask(
                false, fmt::format("{}: {}: at least {:.3g}", step.run.name, what, least),
                fmt::format("{:.3g}", own), "a step of training takes more than that");
    };
    ask("flops of all devices", flops_of(step.report), flops_of(usual));
    ask("bytes of the optimizer's state on all devices", state_of(step.report),
        state_of(usual));
    ask("bytes that updates move on all devices", moved_for_updates(step.report),
        2 * state_of(usual));
    ask("bytes sent for gradients and new values by all devices",
        sent_for_gradients(step.report), sent_for_gradients(usual));
}

std::string memory_cause(const MemoryReport& memory) {
    std::vector<std::string> held;
    for (int i = 0; i < kMemoryCategories; ++i) {
        const std::int64_t bytes = memory.at_peak.at(i);
        if (bytes > memory.peak / 50)
            held.push_back(fmt::format("{} {}", name_of(static_cast<MemoryCategory>(i)),
                                       gigabytes(bytes)));
    }
    return fmt::format(
        "at its peak it holds {}. Along tp ranks share out parameters, gradients and the "
        "optimizer's state, and activations within layers; along cp all activations; "
        "along dp sequences, which are held one after another. The optimizer's state is "
        "shared out along dp and cp if your program does so",
        fmt::join(held, ", "));
}

void judge_fits(Judge& judge, Kind kind) {
    const Step step = run_step(judge, kind);
    ask_whole(judge, step);
    const std::int64_t most = step.drawn.setting.cluster.memory_bytes;
    for (std::size_t rank = 0; rank < step.report.ranks.size(); ++rank) {
        const MemoryReport& memory = step.report.ranks[rank].memory;
        judge.ask(memory.peak <= most,
                  fmt::format("{}: device {} holds at most {}", step.run.name, rank,
                              gigabytes(most)),
                  gigabytes(memory.peak),
                  memory.peak <= most ? "" : memory_cause(memory));
    }
}

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
        const auto [least, most] =
            std::ranges::minmax(step.report.ranks, {},
                                [&](const RankReport& rank) { return rank.time.*part; });
        const std::string from = time_text(least.time.*part);
        const std::string to = time_text(most.time.*part);
        return from == to ? to : fmt::format("{} to {}", from, to);
    };
    auto sent = most_sent(step.report);
    std::vector<std::string> between;
    for (const auto& [group, bytes] : sent)
        if (bytes > 0 && !group.empty())
            between.push_back(fmt::format("{} over {}", gigabytes(bytes), group));
    const ClusterSpec& cluster = step.drawn.setting.cluster;
    return fmt::format(
        "devices compute for {} of it, and stand still for {} until messages have come. "
        "One sends up to {} to devices of its node ({:.3g} GB/s), and to those of other "
        "nodes ({:.3g} GB/s) {}",
        least_and_most(&TimeReport::compute), least_and_most(&TimeReport::waiting),
        gigabytes(sent[""]), cluster.inside.bytes_per_second * 1e-9,
        cluster.between.bytes_per_second * 1e-9,
        between.empty() ? "nothing" : fmt::format("{}", fmt::join(between, ", ")));
}

/// The time of the best mesh, which is looked for once.
Picoseconds best_time(const NamedSetting& drawn) {
    static std::map<std::string, Picoseconds> known;
    const auto found = known.find(drawn.name);
    if (found != known.end()) return found->second;
    const std::vector<Tried> meshes = fitting_meshes(drawn.setting);
    if (meshes.empty())
        throw MissingError(
            fmt::format("mesh: {}: nothing fits, as drawn; grade again", drawn.name));
    return known.emplace(drawn.name, meshes.front().report.makespan()).first->second;
}

/// A step takes at most so much longer than the library's on its best mesh.
void judge_time(Judge& judge, Kind kind, int percent) {
    const Step step = run_step(judge, kind);
    const Picoseconds best = best_time(step.drawn);
    const Picoseconds most = best + best / 100 * percent;
    const Picoseconds taken = step.report.makespan();
    judge.ask(taken <= most,
              fmt::format("{}: a step takes at most {} of virtual time, {} % more than "
                          "the library's program on its best mesh",
                          step.drawn.name, time_text(most), percent),
              fmt::format("{} on {}", time_text(taken), text_of(step.axes)),
              taken <= most ? "" : time_cause(step));
}

std::vector<Criterion> all_criteria() {
    std::vector<Criterion> all;
    const auto add = [&](const std::string& id, const std::string& title, int points,
                         std::vector<std::string> needs,
                         std::function<void(Judge&)> judged) {
        all.push_back({id, title, points, "mesh", std::move(judged), std::move(needs)});
    };
    add("a11.1-loss", "every rank has the loss of the batch", 10, {}, judge_loss);
    add("a11.1-gradients", "a step changes each part by its gradient", 15, {},
        judge_gradients);
    add("a11.1-norm", "the norm counts each number of the model once", 10,
        {"a11.1-gradients"}, judge_norm);
    add("a11.1-steps", "clipped steps end with one device's weights", 10,
        {"a11.1-loss", "a11.1-norm"}, judge_steps);
    add("a11.1-share", "a device computes and sends its share", 8, {"a11.1-gradients"},
        judge_share);
    add("a11.1-state", "the optimizer's state is kept once", 8, {"a11.1-gradients"},
        judge_state);
    const std::pair<Kind, const char*> kinds[] = {
        {Kind::wide, "a model too wide for replicas"},
        {Kind::nodes, "nodes with a slow network between them"},
        {Kind::context, "sequences too long for a device"}};
    for (const auto& [kind, what] : kinds) {
        const std::string id = "a11.2-" + name_of(kind),
                          begin = fmt::format("{}: ", what);
        add(id + "-fits", begin + "no device holds more than it has", 5,
            {"a11.1-gradients"},
            [kind = kind](Judge& judge) { judge_fits(judge, kind); });
        add(id + "-near", begin + "a step within 60 % of the best mesh's", 4,
            {id + "-fits"}, [kind = kind](Judge& judge) { judge_time(judge, kind, 60); });
        add(id + "-best", begin + "a step within 25 % of the best mesh's", 4,
            {id + "-near"}, [kind = kind](Judge& judge) { judge_time(judge, kind, 25); });
    }
    return all;
}

}  // namespace

Assignment mesh_assignment() {
    return {"mesh",
            "A mesh",
            "The program of one device of a mesh of data, context and tensor "
            "parallelism, and the mesh to choose for a model and a cluster.",
            {"mesh.hpp", "train.cpp", "choose.cpp", "adapters.cpp"},
            all_criteria(),
            mesh_solutions};
}

}  // namespace lockstep::lessons
