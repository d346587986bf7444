#include "lessons/assignments/two_buffers/grading/memory.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/needs.hpp"
#include "src/core/require.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/holdings.hpp"
#include "src/pipeline/period.hpp"

namespace lockstep::lessons::two_buffers {

namespace {

using enum InstructionKind;

/// Returns the whole numbers that a task left on its one rank, so many, or, for -1, any
/// number of them: whatever came from its process.
std::vector<std::int64_t> numbers_left(Judge& judge, const TaskResult& result,
                                       const std::string& name, std::int64_t count) {
    const auto& values = result.ranks.at(0).values;
    const auto found = values.find(name);
    const std::int64_t there = found == values.end() ? 0 : found->second.elements();
    if (count >= 0 && there != count)
        judge.ask(false, fmt::format("{}: {} numbers", name, count),
                  std::to_string(there));
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < there; ++i) {
        const double value = found->second.at(i);
        if (!(std::abs(value) < 0x1p53))
            judge.ask(false, name + ": numbers below 2^53", fmt::format("{}", value));
        numbers.push_back(static_cast<std::int64_t>(value));
    }
    return numbers;
}

// a10.2: how long a stage keeps each version.

struct GivenList {
    std::string name;
    std::vector<Instruction> list;
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

/// Says how a version's last need may be taken wrongly.
struct KeptRule {
    bool only_newest = false;    ///< reads of older versions do not count
    bool open_is_first = false;  ///< what names no version is taken for version 0
    bool updates_need = true;    ///< the U that makes the next version
    bool last_stays = true;
    int behind = 0;  ///< instructions by which `last` is too late
};

/// Which positions keep each version, by the definition: the last that needs it.
std::vector<Positions> versions_by(const KeptRule& rule,
                                   const std::vector<Instruction>& list) {
    std::vector<Positions> versions{{-1, -1}};
    for (int i = 0; i < static_cast<int>(list.size()); ++i) {
        const int newest = static_cast<int>(versions.size()) - 1;
        const Instruction& work = list[i];
        const int open = rule.open_is_first ? 0 : newest;
        const int read = work.weight_version < 0 ? open : work.weight_version;
        if (is_computation(work.kind) && (read == newest || !rule.only_newest))
            versions[read].last = i + rule.behind;
        if (work.kind != optimizer_step) continue;
        if (rule.updates_need) versions[newest].last = i + rule.behind;
        versions.push_back({i, -1});
    }
    if (rule.last_stays) versions.back().last = -1;
    return versions;
}

std::vector<Positions> expected_versions(const std::vector<Instruction>& list) {
    return versions_by({}, list);
}

/// Says by which wrong rule a list's versions are kept so, if there is one.
std::string cause_of_kept(const GivenList& given, const std::vector<std::int64_t>& kept) {
    const std::pair<KeptRule, const char*> rules[] = {
        {{.only_newest = true},
         "reads of a version that is not the newest are left out: it is needed until "
         "then"},
        {{.open_is_first = true},
         "what names no version (-1) is taken for version 0; it reads the newest"},
        {{.updates_need = false},
         "the U that makes the next version needs this one, too"},
        {{.last_stays = false}, "the last version stays: -1"},
        {{.behind = 1}, "each version is kept for one instruction longer than needed"}};
    for (const auto& [rule, sentence] : rules) {
        const std::vector<Positions> wrong = versions_by(rule, given.list);
        bool same = kept.size() == 2 * wrong.size();
        for (std::size_t i = 0; same && i < wrong.size(); ++i)
            same = kept[2 * i] == wrong[i].first && kept[2 * i + 1] == wrong[i].last;
        if (same) return sentence;
    }
    return "";
}

std::string position_text(const GivenList& given, std::int64_t position) {
    if (position < 0 || position >= static_cast<std::int64_t>(given.list.size()))
        return std::to_string(position);
    return fmt::format("{} ({})", position,
                       text_of(given.list[static_cast<std::size_t>(position)]));
}

/// `kept` has made and dropped of each version.
void ask_kept(Judge& judge, const GivenList& given,
              const std::vector<std::int64_t>& kept) {
    const std::vector<Positions> expected = expected_versions(given.list);
    judge.ask(kept.size() == 2 * expected.size(),
              fmt::format("{}: {} versions, as it has {} U", given.name, expected.size(),
                          expected.size() - 1),
              fmt::format("{} versions", kept.size() / 2));
    for (std::size_t version = 0; version < expected.size(); ++version) {
        const auto text = [&](std::int64_t made, std::int64_t dropped) {
            return fmt::format("made {}, dropped {}", position_text(given, made),
                               position_text(given, dropped));
        };
        const Positions& each = expected[version];
        const std::int64_t made = kept[2 * version];
        const std::int64_t dropped = kept[2 * version + 1];
        judge.ask(made == each.first && dropped == each.last,
                  fmt::format("{}: version {}: {}", given.name, version,
                              text(each.first, each.last)),
                  text(made, dropped), cause_of_kept(given, kept));
    }
}

HostTensor tensor_of(const std::vector<Instruction>& list) {
    HostTensor rows({static_cast<std::int64_t>(list.size()), 3}, DType::f64);
    std::int64_t next = 0;
    for (const Instruction& each : list)
        for (const int number :
             {static_cast<int>(each.kind), each.micro_batch, each.weight_version})
            rows.set(next++, number);
    return rows;
}

// a10.3 and a10.4: bytes, and a choice. What is expected is measured of the library's own
// schedules, when they have gone on for long.

/// As the handout's adapters.hpp has them, in its order.
enum class Scheme { flush, stash, two_buffers };
constexpr Scheme kSchemes[] = {Scheme::flush, Scheme::stash, Scheme::two_buffers};

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
    HostTensor rows({static_cast<std::int64_t>(bytes.size()), 4}, DType::f64);
    std::int64_t next = 0;
    for (const StageBytes& each : bytes)
        for (const std::int64_t number :
             {each.weights, each.activations, each.gradients, each.optimizer})
            rows.set(next++, static_cast<double>(number));
    return rows;
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

/// Returns whether a scheme can be had with so many micro-batches between updates.
bool can_be(const Choice& choice, int stages) {
    if (choice.scheme == Scheme::stash) return choice.per_update == 1;
    return choice.scheme == Scheme::flush || choice.per_update >= stages - 1;
}

Schedule long_schedule(const Choice& choice, int stages) {
    const int k = choice.per_update;
    if (choice.scheme == Scheme::flush)
        return make_schedule("1f1b", {stages, 3 * k, 1, k});
    const char* name = choice.scheme == Scheme::stash ? "pipedream" : "pipedream-2bw";
    return make_endless_schedule(name, {stages, 4 * k, 1, k}).value();
}

/// Returns the most that each stage holds.
std::vector<std::int64_t> measured_bytes(const PeriodTiming& period,
                                         const std::vector<StageBytes>& bytes) {
    std::vector<KeptMemory> kept;
    kept.reserve(bytes.size());
    for (const StageBytes& each : bytes)
        kept.push_back({static_cast<double>(each.activations), 0, 0,
                        static_cast<double>(each.weights)});
    const std::vector<Holdings> peaks = peak_holdings(period, ScheduleMemory(kept));
    std::vector<std::int64_t> most;
    for (std::size_t stage = 0; stage < bytes.size(); ++stage)
        most.push_back(static_cast<std::int64_t>(peaks[stage].memory) +
                       bytes[stage].gradients + bytes[stage].optimizer);
    return most;
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

void ask_bytes(Judge& judge, const Choice& choice, int stages) {
    const std::string name = fmt::format("{}, p = {}", text_of(choice), stages);
    const auto bytes = drawn_bytes(judge, "a10.3: " + name, stages);
    const RankTask task{
        "most_bytes",
        {{"bytes", {tensor_of(bytes)}}},
        {{"scheme", static_cast<int>(choice.scheme)}, {"per_update", choice.per_update}},
        true};
    const auto left = numbers_left(judge, judge.run({name, {task}}), "most", stages);
    const auto expected =
        measured_bytes(time_period(long_schedule(choice, stages), {}), bytes);
    for (std::size_t stage = 0; stage < expected.size(); ++stage) {
        const std::int64_t most = expected[stage];
        const StageBytes& each = bytes[stage];
        judge.ask(left[stage] == most,
                  fmt::format("{}: stage {}, whose weights are {} bytes, activations {}, "
                              "gradients {}, state {}, holds {}",
                              name, stage, each.weights, each.activations, each.gradients,
                              each.optimizer, most),
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
};

/// A choice comes to this.
struct Outcome {
    Choice choice;
    Picoseconds length = 0;  ///< of a period
    int micro_batches = 1;   ///< in it
    int late = 0;
    std::vector<std::int64_t> bytes;  ///< of each stage
};

Outcome outcome_of(const Setting& setting, const Choice& choice) {
    const Durations each{setting.forward,
                         setting.backward / 2,
                         setting.backward - setting.backward / 2,
                         0,
                         0,
                         0,
                         setting.update};
    const PeriodTiming period =
        time_period(long_schedule(choice, setting.stages()), {each});
    Outcome outcome{choice, period.length, period.micro_batches, 0,
                    measured_bytes(period, setting.bytes)};
    for (const std::vector<int>& stage : staleness(period))
        outcome.late = std::max(outcome.late, stage.front());
    return outcome;
}

/// Returns what speaks against what comes of a choice, or nothing.
std::string objection(const Setting& setting, const Outcome& outcome) {
    if (outcome.late > setting.most_late)
        return fmt::format("gradients are up to {} updates late; {} are allowed",
                           outcome.late, setting.most_late);
    for (std::size_t stage = 0; stage < outcome.bytes.size(); ++stage)
        if (outcome.bytes[stage] > setting.memory)
            return fmt::format("stage {} holds {} bytes; its device has {}", stage,
                               outcome.bytes[stage], setting.memory);
    return "";
}

/// Returns what speaks against a choice, or nothing.
std::string objection(const Setting& setting, const Choice& choice) {
    if (choice.per_update < 1 || choice.per_update > setting.most_per_update)
        return fmt::format("{} micro-batches between updates; 1 to {} are allowed",
                           choice.per_update, setting.most_per_update);
    if (can_be(choice, setting.stages()))
        return objection(setting, outcome_of(setting, choice));
    return choice.scheme == Scheme::stash
               ? "with a stash there is an update behind every micro-batch: k = 1"
               : "with so few micro-batches a version is not there when stage 0 wants to "
                 "read it";
}

/// Says how a choice may be made wrongly.
struct ChoiceRule {
    bool updates = true;  ///< counts the time of an update
    bool largest = true;  ///< takes the largest k that is allowed, not the smallest
    int least = -1;       ///< two buffers' k is p and this at least
};

/// The fastest of all that are allowed, by a rule.
struct Fastest {
    std::optional<Outcome> best{};
    std::vector<Choice> as_fast{};  ///< it, and all that take the same time
};

/// Returns what comes of a choice, if it is allowed by the rule.
std::optional<Outcome> allowed_by(const ChoiceRule& rule, const Setting& setting,
                                  const Choice& choice) {
    const bool is_early = choice.scheme == Scheme::two_buffers &&
                          choice.per_update < setting.stages() + rule.least;
    if (is_early || !can_be(choice, setting.stages())) return std::nullopt;
    Setting timed = setting;
    if (!rule.updates) timed.update = 0;
    const Outcome outcome = outcome_of(timed, choice);
    if (!objection(setting, outcome).empty()) return std::nullopt;
    return outcome;
}

Fastest fastest_by(const ChoiceRule& rule, const Setting& setting) {
    Fastest fastest;
    const auto consider = [&](const Outcome& outcome) {
        const auto& best = fastest.best;
        if (best && !rule.largest && best->choice.scheme == outcome.choice.scheme) return;
        if (best) {
            const Picoseconds here = outcome.length * best->micro_batches;
            const Picoseconds there = best->length * outcome.micro_batches;
            if (here == there) fastest.as_fast.push_back(outcome.choice);
            if (here >= there) return;
        }
        fastest = {outcome, {outcome.choice}};
    };
    for (const Scheme scheme : kSchemes)
        for (int k = 1; k <= setting.most_per_update; ++k)
            if (const auto outcome = allowed_by(rule, setting, {scheme, k}))
                consider(*outcome);
    return fastest;
}

/// Tries everything. Throws MissingError if two are equally fast, which is a mistake of
/// the setting, and not the student's.
std::optional<Outcome> expected_choice(const Setting& setting) {
    const Fastest fastest = fastest_by({}, setting);
    if (fastest.as_fast.size() > 1)
        throw MissingError(fmt::format(
            "two-buffers: {}: two choices are equally fast, as drawn; grade again",
            setting.name));
    return fastest.best;
}

/// The bytes of the fullest stage.
std::int64_t fullest(const Setting& setting, const Choice& choice) {
    return std::ranges::max(outcome_of(setting, choice).bytes);
}

std::vector<Setting> settings(const Judge& judge) {
    const auto make = [&](const std::string& name, int stages, int most_per_update,
                          int most_late) {
        return Setting{name, drawn_bytes(judge, "a10.4: " + name, stages),
                       most_per_update, most_late};
    };
    const auto room = [](Setting setting, const Choice& choice, std::int64_t more = 0) {
        setting.memory = fullest(setting, choice) + more;
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

std::string text_of(const Setting& setting) {
    return fmt::format(
        "{}: p = {}, k at most {}, {} updates late at most, {} bytes, t_f = "
        "{}, t_b = {}, t_u = {}",
        setting.name, setting.stages(), setting.most_per_update, setting.most_late,
        setting.memory, setting.forward, setting.backward, setting.update);
}

/// Returns what was chosen; none if it says that nothing fits.
std::optional<Choice> chosen(Judge& judge, const Setting& setting) {
    const RankTask task{"fastest",
                        {{"bytes", {tensor_of(setting.bytes)}}},
                        {{"memory", setting.memory},
                         {"most_per_update", setting.most_per_update},
                         {"most_late", setting.most_late},
                         {"forward", setting.forward},
                         {"backward", setting.backward},
                         {"update", setting.update}},
                        true};
    const auto left =
        numbers_left(judge, judge.run({text_of(setting), {task}}), "chosen", -1);
    if (left.size() != 2) return std::nullopt;
    judge.ask(left[0] >= 0 && left[0] <= 2, text_of(setting) + ": one of three schemes",
              fmt::format("number {}", left[0]));
    constexpr std::int64_t kLargest = std::numeric_limits<int>::max();
    return Choice{static_cast<Scheme>(left[0]),
                  static_cast<int>(std::clamp<std::int64_t>(left[1], -1, kLargest))};
}

}  // namespace

void judge_kept(Judge& judge) {
    for (const GivenList& given : given_lists(judge)) {
        const RankTask task{
            "kept_versions", {{"list", {tensor_of(given.list)}}}, {}, true};
        ask_kept(judge, given,
                 numbers_left(judge, judge.run({given.name, {task}}), "kept", -1));
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
        const std::optional<Choice> choice = chosen(judge, setting);
        const std::string asked = text_of(setting) + ": a choice that is allowed";
        if (choice) {
            const std::string wrong = objection(setting, *choice);
            judge.ask(wrong.empty(), asked, text_of(*choice), wrong);
            continue;
        }
        const auto expected = expected_choice(setting);
        judge.ask(!expected, expected ? asked : text_of(setting) + ": none", "none",
                  expected ? text_of(expected->choice) + " is allowed" : "");
    }
}

namespace {

/// Says by which wrong rule all choices were made, if there is one.
std::string cause_of_choices(Judge& judge, const std::vector<Setting>& all) {
    const auto is_by = [&](const ChoiceRule& rule) {
        return std::ranges::all_of(all, [&](const Setting& setting) {
            const std::optional<Choice> choice = chosen(judge, setting);
            const std::vector<Choice> fastest = fastest_by(rule, setting).as_fast;
            return choice ? std::ranges::find(fastest, *choice) != fastest.end()
                          : fastest.empty();
        });
    };
    if (is_by({.least = 0}))
        return "; all choices are as if two buffers needed k = p, but p - 1 is enough";
    if (is_by({.updates = false}))
        return "; all choices are as if an update took no time";
    if (is_by({.largest = false}))
        return "; all choices have the smallest k that is allowed";
    return "";
}

}  // namespace

void judge_fastest(Judge& judge) {
    needs(judge, "a10.4-allowed", judge_allowed);
    const std::vector<Setting> all = settings(judge);
    for (const Setting& setting : all) {
        const std::optional<Choice> choice = chosen(judge, setting);
        const std::optional<Outcome> expected = expected_choice(setting);
        const bool right = expected ? choice == expected->choice : !choice;
        const std::string said =
            right || !expected
                ? ""
                : fmt::format("{} takes {} / {} units of time a micro-batch{}",
                              text_of(expected->choice), expected->length,
                              expected->micro_batches, cause_of_choices(judge, all));
        judge.ask(right,
                  fmt::format("{}: {}", text_of(setting),
                              expected ? text_of(expected->choice) : "none"),
                  choice ? text_of(*choice) : "none", said);
    }
}

}  // namespace lockstep::lessons::two_buffers
