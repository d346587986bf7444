#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/mesh/grading/settings.hpp"
#include "lessons/assignments/mesh/grading/training.hpp"
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

/// Returns the result of choose(), if it is one of the possible meshes.
Axes chosen(Judge& judge, const NamedSetting& drawn) {
    const TaskRun run{drawn.name, {{"choose", {}, numbers_of(drawn.setting)}}};
    const auto& texts = judge.run(run).ranks.front().texts;
    const std::string text = texts.contains("axes") ? texts.at("axes") : "no axes";
    const std::vector<Axes> possible = possible_meshes(drawn.setting);
    const auto found = std::ranges::find(
        possible, text, [](const Axes& axes) { return MeshShape(axes).text(); });
    judge.ask(found != possible.end(),
              fmt::format("{}: dp, cp and tp, each once, with product {}; dp must divide "
                          "the sequences, 2 cp the tokens, and tp the heads of keys",
                          drawn.name, drawn.setting.devices),
              text);
    return *found;
}

/// Returns a job on the same mesh that is small enough to run with values.
GivenJob twin_of(const Judge& judge, const NamedSetting& drawn, const Axes& axes) {
    const int replicas = MeshShape(axes).size("dp");
    GivenJob twin = small_case(judge, axes, replicas > 1 ? replicas + 1 : 1);
    twin.sizes.context = 64;
    twin.sizes.block = {
        .hidden = 32, .heads = 16, .kv_heads = drawn.setting.sizes.block.kv_heads};
    return twin;
}

/// Returns a run of a step of train(), by shapes only. The run stops if a device is full.
TaskRun step_run(Kind kind, const NamedSetting& drawn, const Axes& axes) {
    TaskRun run{drawn.name + ", on " + text_of(axes), {}, drawn.setting.cluster, false};
    run.ranks.assign(
        static_cast<std::size_t>(drawn.setting.devices),
        {"train " + name_of(kind), {}, numbers_of(step_of(drawn.setting, axes))});
    return run;
}

/// The bytes sent for gradients and new values. Messages along tp do not count, and
/// neither do messages of attention along cp (send and all_to_all).
constexpr RankFigure kSentForGradients{
    "sent for gradients and new values", "bytes", [](const RankReport& rank) {
        std::int64_t sent = 0;
        for (const Traffic& traffic : rank.traffic) {
            const bool is_of_attention =
                traffic.group == "cp" &&
                (traffic.verb == "send" || traffic.verb == "all_to_all");
            if (traffic.group != "tp" && !is_of_attention) sent += traffic.bytes_sent;
        }
        return sent;
    }};

/// Returns the bytes that all devices read and write for updates.
std::int64_t moved_for_updates(const RunReport& report) {
    std::int64_t bytes = 0;
    for (const TraceEvent& event : report.trace)
        if (event.name == ops::AdamW::kName) bytes += event.bytes;
    return bytes;
}

/// Returns the run on devices with more memory, because the reference may need more
/// memory than a program that just fits.
TaskRun with_room(TaskRun run) {
    run.name += ", with more memory";
    run.spec.memory_bytes *= 8;
    return run;
}

/// Judges whether a shapes-only run, which has no values, does the work of a whole step.
void ask_whole(Judge& judge, const TaskRun& run) {
    const RunReport& right = judge.right(with_room(run)).report;
    const auto ask = [&](const char* what, const char* unit, const auto& measure) {
        const std::int64_t own = measure(judge.run(run).report);
        const std::int64_t least = measure(right) / 100 * 95;
        judge.ask(own >= least,
                  fmt::format("{}: {} on all devices: at least {} {}", run.name, what,
                              least, unit),
                  fmt::format("{}", own), "a step of training takes more than that");
    };
    for (const RankFigure& figure : {kFlops, kState, kSentForGradients})
        ask(figure.name, figure.unit,
            [&](const RunReport& report) { return sum_of(report, figure); });
    ask("moved for updates", "bytes", moved_for_updates);
}

void judge_fits(Judge& judge, Kind kind) {
    const NamedSetting drawn = setting_of(judge, kind);
    const Axes axes = chosen(judge, drawn);
    judge_gradients_of(judge, twin_of(judge, drawn, axes));
    ask_whole(judge, step_run(kind, drawn, axes));
}

/// Returns a sentence about how the run spends its time.
std::string time_cause(const RunReport& report) {
    std::map<std::string, std::int64_t> sent;
    for (const RankReport& rank : report.ranks)
        for (const Traffic& traffic : rank.traffic)
            sent[fmt::format("{} {}", traffic.group,
                             traffic.between_nodes ? "between nodes" : "within nodes")] +=
                traffic.bytes_sent;
    const auto busiest = std::ranges::max_element(
        report.ranks, {}, [](const RankReport& rank) { return rank.time.compute; });
    std::string text = fmt::format(
        "the busiest device computes for {} of it, and waits for messages for {}",
        time_text(busiest->time.compute), time_text(busiest->time.waiting));
    for (const auto& [where, bytes] : sent)
        if (bytes > 50'000'000)
            text += fmt::format("; {:.1f} GB go over {}",
                                static_cast<double>(bytes) * 1e-9, where);
    return text;
}

/// Returns the time of a step on the best mesh. Keeps the result for each setting.
Picoseconds best_time(const NamedSetting& drawn) {
    static std::map<std::string, Picoseconds> known;
    if (const auto best = known.find(drawn.name); best != known.end())
        return best->second;
    const auto fitting = fitting_meshes(drawn.setting);
    if (fitting.empty()) throw GradingError(drawn.name + ": no mesh fits");
    return known[drawn.name] = fitting.front().report.makespan();
}

/// Judges a step: at most `percent` per cent longer than the library's on its best mesh.
void judge_time(Judge& judge, Kind kind, int percent) {
    const NamedSetting drawn = setting_of(judge, kind);
    const TaskRun run = step_run(kind, drawn, chosen(judge, drawn));
    const RunReport& report = judge.run(run).report;
    judge.figure(fmt::format("{}: a step, {} % more than the library's program takes on "
                             "its best mesh",
                             run.name, percent),
                 kPicoseconds, best_time(drawn), report.makespan(), {100, percent},
                 time_cause(report));
}

Criterion criterion(const std::string& id, const std::string& title, int points,
                    std::vector<std::string> needs, std::function<void(Judge&)> judge) {
    return {"a11." + id, title, points, "mesh", std::move(judge), std::move(needs)};
}

std::vector<Criterion> all_criteria() {
    const std::string gradients = "a11.1-gradients";
    std::vector<Criterion> all{
        criterion("1-loss", "every rank has the loss of the batch", 10, {}, judge_loss),
        criterion("1-gradients", "a step changes each part by its gradient", 15, {},
                  judge_gradients),
        criterion("1-norm", "the norm counts each number of the model once", 10,
                  {gradients}, judge_norm),
        criterion("1-steps", "clipped steps end with one device's weights", 10,
                  {"a11.1-loss", "a11.1-norm"}, judge_steps),
        criterion("1-share", "a device computes and sends its share", 8, {gradients},
                  judge_share),
        criterion("1-state", "the optimizer's state is kept once", 8, {gradients},
                  judge_state)};
    all[1].after = {"a11.1-loss"};
    const std::pair<Kind, const char*> kinds[] = {
        {Kind::wide, "a model too wide for replicas"},
        {Kind::nodes, "nodes with a slow network between them"},
        {Kind::context, "sequences too long for a device"}};
    for (const auto& [kind, what] : kinds) {
        const std::string id = "2-" + name_of(kind), begin = fmt::format("{}: ", what);
        const auto within = [kind = kind](int percent) {
            return [=](Judge& judge) { judge_time(judge, kind, percent); };
        };
        all.push_back(criterion(
            id + "-fits", begin + "no device holds more than its memory", 2, {gradients},
            [kind = kind](Judge& judge) { judge_fits(judge, kind); }));
        all.push_back(criterion(id + "-near",
                                begin + "a step within 60 % of the best mesh's", 4,
                                {"a11." + id + "-fits"}, within(60)));
        all.push_back(criterion(id + "-best",
                                begin + "a step within 25 % of the best mesh's", 7,
                                {"a11." + id + "-near"}, within(25)));
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
