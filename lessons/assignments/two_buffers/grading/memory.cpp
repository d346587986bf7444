#include "lessons/assignments/two_buffers/grading/memory.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "src/pipeline/generators.hpp"

namespace lockstep::lessons::two_buffers {

namespace {

using Numbers = std::vector<std::int64_t>;

/// Returns the whole numbers that a task left on its one rank, so many, or, for -1, any
/// number of them: whatever came from its process.
Numbers numbers_left(Judge& judge, const TaskResult& result, const std::string& name,
                     std::int64_t count = -1) {
    const auto& values = result.ranks.at(0).values;
    const auto found = values.find(name);
    const std::int64_t there = found == values.end() ? 0 : found->second.elements();
    if (count >= 0 && there != count)
        judge.ask(false, fmt::format("{}: {} numbers", name, count),
                  std::to_string(there));
    Numbers numbers;
    for (std::int64_t i = 0; i < there; ++i) {
        const double value = found->second.at(i);
        if (!(std::abs(value) < 0x1p53))
            judge.ask(false, name + ": numbers below 2^53", fmt::format("{}", value));
        numbers.push_back(static_cast<std::int64_t>(value));
    }
    return numbers;
}

/// Returns what is said of the first mistake that leaves the same numbers in all runs;
/// nothing if none does.
std::string cause_of(Judge& judge, const std::vector<TaskRun>& runs,
                     const std::string& name) {
    for (const Solution& mistaken : two_buffers_solutions()) {
        SolutionWork work(mistaken, sim::CheckLevel::cheap);
        const auto fits = [&](const TaskRun& run) {
            const TaskResult& result = work.run(run);
            return !result.trouble && numbers_left(judge, result, name) ==
                                          numbers_left(judge, judge.run(run), name);
        };
        if (!mistaken.says.empty() && std::ranges::all_of(runs, fits))
            return mistaken.says;
    }
    return "";
}

/// A tensor of rows, each of which has the same numbers of an item.
template <typename Item, typename RowOf>
HostTensor tensor_of(const std::vector<Item>& items, std::int64_t columns, RowOf row_of) {
    HostTensor rows({static_cast<std::int64_t>(items.size()), columns}, DType::f64);
    std::int64_t next = 0;
    for (const Item& each : items)
        for (const std::int64_t number : row_of(each))
            rows.set(next++, static_cast<double>(number));
    return rows;
}

// a10.2: how long a stage keeps each version.

struct GivenList {
    std::string name;
    std::vector<Instruction> list;

    TaskRun run() const {
        const HostTensor rows = tensor_of(list, 3, [](const Instruction& each) {
            return Numbers{static_cast<std::int64_t>(each.kind), each.micro_batch,
                           each.weight_version};
        });
        return {name, {{"kept_versions", {{"list", {rows}}}, {}, true}}};
    }
};

std::vector<GivenList> given_lists(const Judge& judge) {
    std::vector<GivenList> lists;
    const auto add = [&](const std::string& generator, const PipelineShape& shape,
                         int stage) {
        const std::string batches =
            shape.per_update > 1 ? fmt::format(", k = {}", shape.per_update) : "";
        lists.push_back({fmt::format("stage {} of {}, p = {}, m = {}{}", stage, generator,
                                     shape.stages, shape.micro_batches, batches),
                         make_schedule(generator, shape).of(stage)});
    };
    const int p = drawn(judge, "a10.2: p", 4, 7);
    const int k = drawn(judge, "a10.2: k", p, 2 * p);
    for (const int stage : {0, p - 1})
        add("pipedream-2bw", {p, 4 * k, 1, k}, stage);
    add("pipedream-2bw", {3, 3, 1, 3}, 1);
    for (const int stage : {0, 2, p - 1})
        add("pipedream", {p, 3 * p, 1}, stage);
    add("pipedream-vertical", {4, drawn(judge, "a10.2: m", 9, 13), 1},
        drawn(judge, "a10.2: stage", 1, 3));
    add("1f1b", {3, 4 * drawn(judge, "a10.2: updates", 2, 4), 1, 4}, 1);
    return lists;
}

std::string position_text(const GivenList& given, std::int64_t position) {
    if (position < 0 || position >= static_cast<std::int64_t>(given.list.size()))
        return std::to_string(position);
    return fmt::format("{} ({})", position,
                       text_of(given.list[static_cast<std::size_t>(position)]));
}

/// Both have the positions where each version is made and dropped.
void ask_kept(Judge& judge, const GivenList& given, const Numbers& kept,
              const Numbers& right) {
    judge.ask(kept.size() == right.size(),
              fmt::format("{}: {} versions, as it has {} U", given.name, right.size() / 2,
                          right.size() / 2 - 1),
              fmt::format("{} versions", kept.size() / 2));
    for (std::size_t i = 0; i < right.size(); i += 2) {
        const auto text = [&](const Numbers& positions) {
            return fmt::format("made {}, dropped {}", position_text(given, positions[i]),
                               position_text(given, positions[i + 1]));
        };
        const bool same = kept[i] == right[i] && kept[i + 1] == right[i + 1];
        judge.ask(same, fmt::format("{}: version {}: {}", given.name, i / 2, text(right)),
                  text(kept), same ? "" : cause_of(judge, {given.run()}, "kept"));
    }
}

// a10.3 and a10.4: bytes, and a choice.

/// As the handout's adapters.hpp has them, in its order.
enum class Scheme { flush, stash, two_buffers };

struct Choice {
    Scheme scheme = Scheme::flush;
    int per_update = 1;

    bool operator==(const Choice&) const = default;
};

std::string text_of(const Choice& choice) {
    const char* const names[] = {"flush", "stash", "two_buffers"};
    return fmt::format("{} with k = {}", names[static_cast<int>(choice.scheme)],
                       choice.per_update);
}

/// A stage holds these bytes; the order is the handout's.
struct StageBytes {
    std::int64_t weights = 0;
    std::int64_t activations = 0;
    std::int64_t gradients = 0;
    std::int64_t optimizer = 0;
};

HostTensor tensor_of(const std::vector<StageBytes>& bytes) {
    return tensor_of(bytes, 4, [](const StageBytes& each) {
        return Numbers{each.weights, each.activations, each.gradients, each.optimizer};
    });
}

std::vector<StageBytes> drawn_bytes(const Judge& judge, const std::string& name,
                                    int stages) {
    std::vector<StageBytes> bytes;
    for (int stage = 0; stage < stages; ++stage) {
        const auto draw = [&](const char* what, int low, int high) {
            return judge.draw(fmt::format("{}: {} of stage {}", name, what, stage), low,
                              high);
        };
        bytes.push_back({draw("weights", 3000, 4000), draw("activations", 500, 900),
                         draw("gradients", 6000, 8000), draw("optimizer", 11000, 12000)});
    }
    return bytes;
}

/// Says of what bytes are made up, if it can be of one thing alone.
std::string parts_of(std::int64_t held, const StageBytes& bytes, int most) {
    std::string found;
    for (int versions = 0; versions <= most; ++versions)
        for (int sums = 0; sums <= 2; ++sums)
            for (int states = 0; states <= 2; ++states) {
                const std::int64_t rest = held - versions * bytes.weights -
                                          sums * bytes.gradients -
                                          states * bytes.optimizer;
                if (rest < 0 || rest % bytes.activations != 0) continue;
                if (rest / bytes.activations > most) continue;
                if (!found.empty()) return "";
                found = fmt::format(
                    "that is {} times the weights, {} times the activations, {} times "
                    "the gradients and {} times the state",
                    versions, rest / bytes.activations, sums, states);
            }
    return found;
}

TaskRun bytes_run(const std::string& name, const Choice& choice,
                  const std::vector<StageBytes>& bytes) {
    return {name,
            {{"most_bytes",
              {{"bytes", {tensor_of(bytes)}}},
              {{"scheme", static_cast<int>(choice.scheme)},
               {"per_update", choice.per_update}},
              true}}};
}

void ask_bytes(Judge& judge, const Choice& choice, int stages) {
    const std::string name = fmt::format("{}, p = {}", text_of(choice), stages);
    const auto bytes = drawn_bytes(judge, "a10.3: " + name, stages);
    const TaskRun run = bytes_run(name, choice, bytes);
    const Numbers left = numbers_left(judge, judge.run(run), "most", stages);
    const Numbers right = numbers_left(judge, judge.right(run), "most", stages);
    for (std::size_t stage = 0; stage < right.size(); ++stage) {
        const StageBytes& each = bytes[stage];
        judge.ask(left[stage] == right[stage],
                  fmt::format("{}: stage {}, whose weights are {} bytes, activations {}, "
                              "gradients {}, state {}, holds {}",
                              name, stage, each.weights, each.activations, each.gradients,
                              each.optimizer, right[stage]),
                  std::to_string(left[stage]),
                  parts_of(left[stage], each, std::max(stages, choice.per_update) + 1));
    }
}

struct Setting {
    std::string name;
    std::vector<StageBytes> bytes;
    int most_per_update = 1;
    int most_late = 0;
    std::int64_t forward = 1;
    std::int64_t backward = 2;
    std::int64_t update = 1;
    std::int64_t memory = 0;

    int stages() const { return static_cast<int>(bytes.size()); }
    /// What it asks for, for sentences.
    std::string text() const {
        return fmt::format(
            "{}: p = {}, k at most {}, {} updates late at most, {} bytes, t_f = {}, t_b "
            "= {}, t_u = {}",
            name, stages(), most_per_update, most_late, memory, forward, backward,
            update);
    }
    TaskRun run() const {
        return {text(),
                {{"fastest",
                  {{"bytes", {tensor_of(bytes)}}},
                  {{"memory", memory},
                   {"most_per_update", most_per_update},
                   {"most_late", most_late},
                   {"forward", forward},
                   {"backward", backward},
                   {"update", update}},
                  true}}};
    }
};

/// Returns what each stage holds by a choice.
Numbers bytes_of(Judge& judge, const Setting& setting, const Choice& choice) {
    const std::string name = fmt::format("{}, {}", setting.name, text_of(choice));
    return numbers_left(judge, judge.right(bytes_run(name, choice, setting.bytes)),
                        "most");
}

/// Returns what speaks against a choice, or nothing.
std::string objection(Judge& judge, const Setting& setting, const Choice& choice) {
    const auto [scheme, k] = choice;
    if (k < 1 || k > setting.most_per_update)
        return fmt::format("{} micro-batches between updates; 1 to {} are allowed", k,
                           setting.most_per_update);
    if (scheme == Scheme::stash && k != 1)
        return "with a stash there is an update behind every micro-batch: k = 1";
    if (scheme == Scheme::two_buffers && k < setting.stages() - 1)
        return "with so few micro-batches a version is not there when stage 0 wants to "
               "read it";
    const int by_scheme[] = {0, setting.stages() - 1, 1};
    const int late = by_scheme[static_cast<int>(scheme)];
    if (late > setting.most_late)
        return fmt::format("gradients are up to {} updates late; {} are allowed", late,
                           setting.most_late);
    const Numbers bytes = bytes_of(judge, setting, choice);
    for (std::size_t stage = 0; stage < bytes.size(); ++stage)
        if (bytes[stage] > setting.memory)
            return fmt::format("stage {} holds {} bytes; its device has {}", stage,
                               bytes[stage], setting.memory);
    return "";
}

std::vector<Setting> settings(Judge& judge) {
    const auto make = [&](const std::string& name, int stages, int most_per_update,
                          int most_late) {
        return Setting{name, drawn_bytes(judge, "a10.4: " + name, stages),
                       most_per_update, most_late};
    };
    // As much memory as the fullest stage holds by a choice, and so much more.
    const auto room = [&](Setting setting, const Choice& choice, std::int64_t more = 0) {
        setting.memory = std::ranges::max(bytes_of(judge, setting, choice)) + more;
        return setting;
    };
    const int p = drawn(judge, "a10.4: p", 5, 8);
    const int k = drawn(judge, "a10.4: k", p, 3 * p);
    const Choice stash{Scheme::stash, 1};
    std::vector<Setting> all{
        room(make("room for all", p, k, p), stash),
        room(make("gradients must not be late", p, k, 0), stash),
        room(make("two versions just fit", p, k, 1), {Scheme::two_buffers, k}),
        room(make("two versions do not fit", p, k, 1), {Scheme::two_buffers, k}, -1),
        room(make("two micro-batches just fit", p, k, p), {Scheme::flush, 2}),
        room(make("nothing fits", p, k, p), {Scheme::flush, 1}, -1),
        room(make("k = p - 1", p, p - 1, p - 2), stash),
        room(make("k = p - 2", p, p - 2, p - 2), stash),
        room(make("k = p - 2, gradients may be late", p, p - 2, p - 1), stash),
        room(make("k = p - 2, slow updates", p, p - 2, p - 1), stash),
        room(make("one stage", 1, k, 0), stash),
    };
    all[9].update = 40;
    // Old versions are kept at the pipeline's begin; this one has its weights at the end.
    Setting heavy = make("a last stage with many weights", 2, 6, 1);
    heavy.bytes[1].weights = 50'000;
    heavy.forward = heavy.backward = 10;
    all.push_back(room(heavy, stash));
    return all;
}

/// Returns what was chosen; none if it says that nothing fits.
std::optional<Choice> chosen(Judge& judge, const Setting& setting,
                             const TaskResult& result) {
    const Numbers left = numbers_left(judge, result, "chosen");
    if (left.size() != 2) return std::nullopt;
    judge.ask(left[0] >= 0 && left[0] <= 2, setting.text() + ": one of three schemes",
              fmt::format("number {}", left[0]));
    constexpr std::int64_t kLargest = std::numeric_limits<int>::max();
    return Choice{static_cast<Scheme>(left[0]),
                  static_cast<int>(std::clamp<std::int64_t>(left[1], -1, kLargest))};
}

std::string text_of(const std::optional<Choice>& choice) {
    return choice ? text_of(*choice) : "none";
}

}  // namespace

void judge_kept(Judge& judge) {
    for (const GivenList& given : given_lists(judge)) {
        const TaskRun run = given.run();
        ask_kept(judge, given, numbers_left(judge, judge.run(run), "kept"),
                 numbers_left(judge, judge.right(run), "kept"));
    }
}

void judge_bytes(Judge& judge) {
    const int p = drawn(judge, "a10.3: p", 5, 8);
    for (const int stages : {4, p, 1}) {
        ask_bytes(judge, {Scheme::two_buffers, stages + 2}, stages);
        ask_bytes(judge, {Scheme::stash, 1}, stages);
        ask_bytes(judge, {Scheme::flush, 3 * stages}, stages);
        ask_bytes(judge, {Scheme::flush, (stages + 1) / 2}, stages);
    }
    ask_bytes(judge, {Scheme::two_buffers, p - 1}, p);
}

void judge_allowed(Judge& judge) {
    for (const Setting& setting : settings(judge)) {
        const TaskRun run = setting.run();
        const auto choice = chosen(judge, setting, judge.run(run));
        const auto right = chosen(judge, setting, judge.right(run));
        std::string wrong;
        if (choice) wrong = objection(judge, setting, *choice);
        if (!choice && right) wrong = text_of(*right) + " is allowed";
        judge.ask(
            wrong.empty(),
            setting.text() + (choice || right ? ": a choice that is allowed" : ": none"),
            text_of(choice), wrong);
    }
}

void judge_fastest(Judge& judge) {
    std::vector<TaskRun> runs;
    for (const Setting& setting : settings(judge))
        runs.push_back(setting.run());
    for (const Setting& setting : settings(judge)) {
        const TaskRun run = setting.run();
        const auto choice = chosen(judge, setting, judge.run(run));
        const auto right = chosen(judge, setting, judge.right(run));
        std::string said;
        if (right && choice != right) {
            const int k = right->per_update;
            const int turns =
                k + (right->scheme == Scheme::flush ? setting.stages() - 1 : 0);
            const std::string cause = cause_of(judge, runs, "chosen");
            said = fmt::format(
                "{} takes {} / {} units of time a micro-batch{}{}", text_of(*right),
                turns * (setting.forward + setting.backward) + setting.update, k,
                cause.empty() ? "" : "; ", cause);
        }
        judge.ask(choice == right, fmt::format("{}: {}", setting.text(), text_of(right)),
                  text_of(choice), said);
    }
}

}  // namespace lockstep::lessons::two_buffers
