#include "lessons/assignments/two_buffers/grading/memory.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "src/pipeline/generators.hpp"

namespace lockstep::lessons::two_buffers {

namespace {

/// Returns the lines of the text that a task's single rank has output.
std::vector<std::string> lines_left(const TaskResult& result) {
    const auto& texts = result.ranks.front().texts;
    const auto found = texts.find("lines");
    std::istringstream text(found == texts.end() ? "" : found->second);
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);)
        lines.push_back(line);
    return lines;
}

/// Judges whether the task has output the same lines as the reference.
void lines_as_right(Judge& judge, const TaskRun& run) {
    const std::vector<std::string> left = lines_left(judge.run(run));
    const std::vector<std::string> right = lines_left(judge.right(run));
    for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
        const std::string asked = i < right.size() ? right[i] : "nothing more";
        const std::string measured = i < left.size() ? left[i] : "nothing more";
        std::string cause;
        if (measured != asked)
            cause = judge.mistake(run, [&](const TaskResult& mistaken) {
                return lines_left(mistaken) == left;
            });
        judge.ask(measured == asked, run.name + ": " + asked, measured, cause);
    }
}

// a10.2: how long a stage keeps each version.

/// Returns a run whose input is a stage's list in rows: kind, micro-batch and version.
TaskRun kept_run(const std::string& generator, const PipelineShape& shape, int stage) {
    const std::vector<Instruction> list = make_schedule(generator, shape).of_stage(stage);
    HostTensor rows({std::ssize(list), 3}, DType::f64);
    std::int64_t next = 0;
    for (const Instruction& each : list)
        for (const int number :
             {static_cast<int>(each.kind), each.micro_batch, each.weight_version})
            rows.set(next++, number);
    return {fmt::format(
                "stage {} of {}, p = {}, m = {}{}", stage, generator, shape.stages,
                shape.micro_batches,
                shape.per_update > 1 ? fmt::format(", k = {}", shape.per_update) : ""),
            {{"kept_versions", {{"list", {rows}}}, {}, true}}};
}

// a10.3: the bytes of a stage. a10.4: the choice of a scheme.

/// The schemes of the handout's adapters.hpp, in the same order.
enum Scheme { flush, stash, two_buffers };

struct Choice {
    Scheme scheme = flush;
    int per_update = 1;
};

std::string choice_text(double scheme, double per_update) {
    const char* const names[] = {"flush", "stash", "two_buffers"};
    const bool is_scheme = scheme == 0 || scheme == 1 || scheme == 2;
    return fmt::format("{} with k = {}",
                       is_scheme ? names[static_cast<int>(scheme)] : "no scheme",
                       per_update);
}

/// Draws a row for each stage: the bytes of weights, activations, gradients and state.
HostTensor drawn_bytes(const Judge& judge, const std::string& name, int stages) {
    const struct {
        const char* name;
        int low, high;
    } columns[] = {{"weights", 3000, 4000},
                   {"activations", 500, 900},
                   {"gradients", 6000, 8000},
                   {"optimizer", 11000, 12000}};
    HostTensor bytes({stages, 4}, DType::f64);
    std::int64_t next = 0;
    for (int stage = 0; stage < stages; ++stage)
        for (const auto& column : columns)
            bytes.set(
                next++,
                drawn(judge, fmt::format("{}: {} of stage {}", name, column.name, stage),
                      column.low, column.high));
    return bytes;
}

TaskRun bytes_run(const std::string& name, const Choice& choice,
                  const HostTensor& bytes) {
    return {name,
            {{"most_bytes",
              {{"bytes", {bytes}}},
              {{"scheme", choice.scheme}, {"per_update", choice.per_update}},
              true}}};
}

void ask_bytes(Judge& judge, const Choice& choice, int stages) {
    const std::string name =
        fmt::format("{}, p = {}", choice_text(choice.scheme, choice.per_update), stages);
    lines_as_right(judge,
                   bytes_run(name, choice, drawn_bytes(judge, "a10.3: " + name, stages)));
}

struct Setting {
    std::string name;
    HostTensor bytes;
    std::map<std::string, std::int64_t> numbers;  ///< the task's inputs

    std::int64_t number(const char* key) const { return numbers.at(key); }
    int stages() const { return static_cast<int>(bytes.shape()[0]); }
    /// Describes the setting, for sentences.
    std::string text() const {
        return fmt::format(
            "{}: p = {}, k at most {}, gradients at most {} updates late, {} bytes, t_f "
            "= {}, t_b = {}, t_u = {}",
            name, stages(), number("most_per_update"), number("most_late"),
            number("memory"), number("forward"), number("backward"), number("update"));
    }
};

/// Returns the maximum number of bytes on each stage if it trains with this choice.
HostTensor bytes_of(const Judge& judge, const Setting& setting, const Choice& choice) {
    const std::string name = fmt::format("{}, {}", setting.name,
                                         choice_text(choice.scheme, choice.per_update));
    const TaskRun run = bytes_run(name, choice, setting.bytes);
    return judge.right(run).ranks.front().values.at("most");
}

std::vector<Setting> settings(const Judge& judge) {
    const auto make = [&](const std::string& name, int stages, int most_per_update,
                          int most_late) {
        return Setting{name,
                       drawn_bytes(judge, "a10.4: " + name, stages),
                       {{"most_per_update", most_per_update},
                        {"most_late", most_late},
                        {"forward", 1},
                        {"backward", 2},
                        {"update", 1}}};
    };
    // Sets the memory to the bytes of the fullest stage with this choice, plus `more`.
    const auto room = [&](Setting setting, const Choice& choice, std::int64_t more = 0) {
        const HostTensor bytes = bytes_of(judge, setting, choice);
        setting.numbers["memory"] =
            static_cast<std::int64_t>(std::ranges::max(bytes.values<double>())) + more;
        return setting;
    };
    const int p = drawn(judge, "a10.4: p", 5, 8);
    const int k = drawn(judge, "a10.4: k", p, 3 * p);
    std::vector<Setting> all{
        room(make("room for all", p, k, p), {stash}),
        room(make("gradients must not be late", p, k, 0), {stash}),
        room(make("two versions just fit", p, k, 1), {two_buffers, k}),
        room(make("two versions do not fit", p, k, 1), {two_buffers, k}, -1),
        room(make("two micro-batches just fit", p, k, p), {flush, 2}),
        room(make("nothing fits", p, k, p), {flush, 1}, -1),
        room(make("k = p - 1", p, p - 1, p - 2), {stash}),
        room(make("k = p - 2", p, p - 2, p - 2), {stash}),
        room(make("k = p - 2, gradients may be late", p, p - 2, p - 1), {stash}),
        room(make("k = p - 2, slow updates", p, p - 2, p - 1), {stash}),
        room(make("one stage", 1, k, 0), {stash}),
    };
    all[9].numbers["update"] = 40;
    // The first stages keep most old versions; here the last stage has most weights.
    Setting heavy = make("a last stage with many weights", 2, 6, 1);
    heavy.bytes.set(4, 50'000);
    heavy.numbers["forward"] = heavy.numbers["backward"] = 10;
    all.push_back(room(heavy, {stash}));
    return all;
}

/// Returns a run of all settings, each on its own rank.
TaskRun choices_run(const std::vector<Setting>& settings) {
    TaskRun run{"these settings:", {}};
    for (const Setting& each : settings) {
        run.name += fmt::format(" {} on rank {};", each.name, run.ranks.size());
        run.ranks.push_back({"fastest", {{"bytes", {each.bytes}}}, each.numbers, true});
    }
    return run;
}

/// Returns the task's choice for each setting; "none" if it has made no choice.
std::vector<std::string> choices(const TaskResult& result) {
    std::vector<std::string> texts;
    for (const RankResult& rank : result.ranks) {
        const auto found = rank.values.find("chosen");
        const bool is_choice =
            found != rank.values.end() && found->second.elements() == 2;
        texts.push_back(is_choice ? choice_text(found->second.at(0), found->second.at(1))
                                  : "none");
    }
    return texts;
}

/// Returns why a choice is not allowed; empty if it is allowed.
std::string objection(const Judge& judge, const Setting& setting, const Choice& choice) {
    const auto [scheme, k] = choice;
    if (scheme == stash && k != 1)
        return "with a stash there is an update after every micro-batch: k = 1";
    if (scheme == two_buffers && k < setting.stages() - 1)
        return "with so few micro-batches stage 0 would read a version that does not "
               "exist yet";
    const int late[] = {0, setting.stages() - 1, 1};
    if (late[scheme] > setting.number("most_late"))
        return fmt::format("gradients are up to {} updates late; {} are allowed",
                           late[scheme], setting.number("most_late"));
    const HostTensor bytes = bytes_of(judge, setting, choice);
    for (int stage = 0; stage < setting.stages(); ++stage)
        if (bytes.at(stage) > static_cast<double>(setting.number("memory")))
            return fmt::format("stage {} holds {} bytes; its device has {}", stage,
                               bytes.at(stage), setting.number("memory"));
    return "";
}

/// Returns the choice with this text, if its k may be allowed.
std::optional<Choice> choice_of(const Setting& setting, const std::string& text) {
    for (const Scheme scheme : {flush, stash, two_buffers})
        for (int k = 1; k <= setting.number("most_per_update"); ++k)
            if (text == choice_text(scheme, k)) return Choice{scheme, k};
    return std::nullopt;
}

/// Returns the average time for a micro-batch.
double time_of(const Setting& setting, const Choice& choice) {
    const int bubble = choice.scheme == flush ? setting.stages() - 1 : 0;
    const auto turns = static_cast<double>(choice.per_update + bubble);
    const auto turn =
        static_cast<double>(setting.number("forward") + setting.number("backward"));
    return (turns * turn + static_cast<double>(setting.number("update"))) /
           choice.per_update;
}

/// Returns what is wrong with a choice that is not `right`, the fastest; empty if it is
/// allowed and at most four times as slow. One micro-batch for each flush is allowed
/// almost always, and needs no formula.
std::string wrong_choice(const Judge& judge, const Setting& setting,
                         const std::string& text, const std::string& right) {
    if (text == "none") return right + " is allowed";
    const std::optional<Choice> choice = choice_of(setting, text);
    if (!choice)
        return fmt::format("one of three schemes, with a k of 1 to {}, is allowed",
                           setting.number("most_per_update"));
    std::string wrong = objection(judge, setting, *choice);
    const std::optional<Choice> fastest = choice_of(setting, right);
    if (!wrong.empty() || !fastest) return wrong;
    const double times = time_of(setting, *choice) / time_of(setting, *fastest);
    return times <= 4 ? ""
                      : fmt::format(
                            "it takes {:.1f} times as long for a micro-batch as "
                            "another choice that is allowed",
                            times);
}

}  // namespace

void judge_kept(Judge& judge) {
    const int p = drawn(judge, "a10.2: p", 4, 7);
    const int k = drawn(judge, "a10.2: k", p, 2 * p);
    const auto ask = [&](const char* generator, const PipelineShape& shape, int stage) {
        lines_as_right(judge, kept_run(generator, shape, stage));
    };
    for (const int stage : {0, p - 1})
        ask("pipedream-2bw", {p, 4 * k, 1, k}, stage);
    ask("pipedream-2bw", {3, 3, 1, 3}, 1);
    for (const int stage : {0, 2, p - 1})
        ask("pipedream", {p, 3 * p, 1}, stage);
    ask("pipedream-vertical", {4, drawn(judge, "a10.2: m", 9, 13), 1},
        drawn(judge, "a10.2: stage", 1, 3));
    ask("1f1b", {3, 4 * drawn(judge, "a10.2: updates", 2, 4), 1, 4}, 1);
}

void judge_bytes(Judge& judge) {
    const int p = drawn(judge, "a10.3: p", 5, 8);
    for (const int stages : {4, p, 1}) {
        ask_bytes(judge, {two_buffers, stages + 2}, stages);
        ask_bytes(judge, {stash}, stages);
        ask_bytes(judge, {flush, 3 * stages}, stages);
        ask_bytes(judge, {flush, (stages + 1) / 2}, stages);
    }
    ask_bytes(judge, {two_buffers, p - 1}, p);
}

void judge_allowed(Judge& judge) {
    const std::vector<Setting> all = settings(judge);
    const TaskRun run = choices_run(all);
    const auto left = choices(judge.run(run)), right = choices(judge.right(run));
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::string wrong =
            left[i] == right[i] ? "" : wrong_choice(judge, all[i], left[i], right[i]);
        judge.ask(wrong.empty(),
                  all[i].text() + (right[i] == "none"
                                       ? ": none"
                                       : ": a choice that is allowed, and takes at "
                                         "most four times as long as the fastest"),
                  left[i], wrong);
    }
}

void judge_fastest(Judge& judge) {
    const std::vector<Setting> all = settings(judge);
    const TaskRun run = choices_run(all);
    const auto left = choices(judge.run(run)), right = choices(judge.right(run));
    const auto same = [&](const TaskResult& mistaken) {
        return choices(mistaken) == left;
    };
    for (std::size_t i = 0; i < all.size(); ++i)
        judge.ask(left[i] == right[i], all[i].text() + ": " + right[i], left[i],
                  left[i] == right[i] ? "" : judge.mistake(run, same));
}

}  // namespace lockstep::lessons::two_buffers
