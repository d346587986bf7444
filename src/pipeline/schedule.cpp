#include "src/pipeline/schedule.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/text/numbers.hpp"

namespace lockstep {

namespace {

struct KindText {
    const char* letters;
    const char* name;
};

constexpr std::array<KindText, kInstructionKinds> kTexts{
    {{"F", "forward"},
     {"B", "backward"},
     {"I", "backward-input"},
     {"W", "backward-weight"},
     {"SA", "send of an activation"},
     {"RA", "receive of an activation"},
     {"SG", "send of a gradient"},
     {"RG", "receive of a gradient"},
     {"R", "reduction of gradients"},
     {"U", "optimizer step"}}};

/// The text of a kind that is out of range; only a cast makes such a kind.
constexpr KindText kUnknown{"?", "unknown"};

const KindText& text_of(InstructionKind kind) {
    const auto at = static_cast<std::size_t>(kind);
    return at < kTexts.size() ? kTexts[at] : kUnknown;
}

/// If the text begins with `mark`, reads the number behind it; false if none is there.
bool take_marked(std::string_view& text, std::string_view mark, int& number) {
    if (!text.starts_with(mark)) return true;
    text.remove_prefix(mark.size());
    return !text.empty() && take_digits(text, number);
}

}  // namespace

const char* name_of(InstructionKind kind) {
    return text_of(kind).name;
}

std::string text_of(const Instruction& instruction) {
    std::string text = text_of(instruction.kind).letters;
    if (has_micro_batch(instruction.kind))
        text += std::to_string(instruction.micro_batch);
    if (instruction.chunk != 0) text += fmt::format(".{}", instruction.chunk);
    if (instruction.weight_version >= 0)
        text += fmt::format("@{}{}", instruction.estimated ? "~" : "",
                            instruction.weight_version);
    if (instruction.mixes_weights) text += '!';
    return text;
}

std::string words_of(const Instruction& instruction) {
    const char* name = name_of(instruction.kind);
    if (!has_micro_batch(instruction.kind))
        return fmt::format("{} ({})", name, text_of(instruction));
    return fmt::format("{} of micro-batch {} ({})", name, instruction.micro_batch,
                       text_of(instruction));
}

std::vector<std::string> texts_of(const std::vector<Instruction>& work) {
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < work.size(); ++i) {
        const bool goes_on = i + 1 < work.size() && work[i + 1].together;
        if (!work[i].together || i == 0)
            texts.push_back(goes_on ? "(" : "");
        else
            texts.back() += ';';
        texts.back() += text_of(work[i]);
        if (work[i].together && i > 0 && !goes_on) texts.back() += ')';
    }
    return texts;
}

namespace {

std::optional<Instruction> read_instruction(std::string_view text) {
    const std::size_t letters =
        std::min(text.find_first_not_of("FBIWSARGU"), text.size());
    Instruction instruction;
    bool known = false;
    for (int kind = 0; kind < kInstructionKinds; ++kind) {
        if (text.substr(0, letters) != kTexts[kind].letters) continue;
        instruction.kind = static_cast<InstructionKind>(kind);
        known = true;
    }
    if (!known) return std::nullopt;
    text.remove_prefix(letters);
    if (has_micro_batch(instruction.kind) &&
        (text.empty() || !take_digits(text, instruction.micro_batch)))
        return std::nullopt;
    if (!take_marked(text, ".", instruction.chunk)) return std::nullopt;
    instruction.estimated = text.starts_with("@~");
    if (!take_marked(text, instruction.estimated ? "@~" : "@",
                     instruction.weight_version))
        return std::nullopt;
    instruction.mixes_weights = text == "!";
    if (!text.empty() && !instruction.mixes_weights) return std::nullopt;
    return instruction;
}

}  // namespace

std::vector<Instruction> read_instructions(std::string_view text) {
    const bool several = text.starts_with('(') && text.ends_with(')');
    if (several) text = text.substr(1, text.size() - 2);
    std::vector<Instruction> read;
    while (true) {
        const std::size_t end =
            several ? std::min(text.find(';'), text.size()) : text.size();
        const std::string_view one = text.substr(0, end);
        std::optional<Instruction> next = read_instruction(several ? trimmed(one) : one);
        if (!next) return {};
        next->together = !read.empty();
        read.push_back(*next);
        if (end == text.size()) break;
        text.remove_prefix(end + 1);
    }
    if (several && read.size() == 1) return {};
    return read;
}

int Schedule::part_count() const {
    int most = -1;
    for (const std::vector<int>& held : parts)
        for (const int part : held)
            most = std::max(most, part);
    return most + 1;
}

int Schedule::holders(int part) const {
    return static_cast<int>(
        std::ranges::count_if(parts, [&](const std::vector<int>& held) {
            return std::ranges::find(held, part) != held.end();
        }));
}

std::vector<Place> Schedule::places(int stage) const {
    std::vector<Place> places(of_stage(stage).size());
    for (std::size_t i = 0; i < places.size(); ++i)
        places[i] = {stage, static_cast<int>(i)};
    return places;
}

Positions Schedule::together(Place place) const {
    const std::vector<Instruction>& list = of_stage(place.stage);
    Positions all{place.position, place.position + 1};
    while (all.first > 0 && list[all.first].together)
        --all.first;
    while (all.last < static_cast<int>(list.size()) && list[all.last].together)
        ++all.last;
    return all;
}

int Schedule::instructions() const {
    std::size_t count = 0;
    for (const std::vector<Instruction>& list : work)
        count += list.size();
    return static_cast<int>(count);
}

int Schedule::computations() const {
    std::ptrdiff_t count = 0;
    for (const std::vector<Instruction>& list : work)
        count += std::ranges::count_if(
            list, [](const Instruction& each) { return is_computation(each.kind); });
    return static_cast<int>(count);
}

bool Schedule::has_messages() const {
    return std::ranges::any_of(work, [](const auto& list) {
        return std::ranges::any_of(
            list, [](const Instruction& each) { return is_message(each.kind); });
    });
}

std::string Schedule::where(Place place) const {
    const Instruction& instruction = at(place);
    return fmt::format("{}stage {}, instruction {} of {}, {}",
                       instruction.line == 0 ? "" : from(instruction.line), place.stage,
                       place.position + 1, of_stage(place.stage).size(),
                       words_of(instruction));
}

std::string Schedule::from(int line) const {
    if (file.empty()) return "";
    return line == 0 ? file + ": " : fmt::format("{}:{}: ", file, line);
}

std::optional<std::string> size_problem(const PipelineShape& shape) {
    struct Size {
        const char* what;
        int value;
        int most;
    };
    for (const Size& size :
         {Size{"stages", shape.stages, kMostStages},
          Size{"micro-batches", shape.micro_batches, kMostMicroBatches},
          Size{"chunks a stage", shape.chunks, kMostChunks}})
        if (size.value < 1 || size.value > size.most)
            return fmt::format("a pipeline of {} {}; 1 to {} are possible", size.value,
                               size.what, size.most);
    const std::int64_t forwards =
        std::int64_t{shape.stages} * shape.micro_batches * shape.chunks;
    if (forwards <= kMostForwards) return std::nullopt;
    return fmt::format(
        "a pipeline of {} stages, {} micro-batches and {} chunks a stage "
        "has {} forwards; at most {} are possible",
        shape.stages, shape.micro_batches, shape.chunks, forwards, kMostForwards);
}

Schedule empty_schedule(const std::string& name, const PipelineShape& shape) {
    const auto problem = size_problem(shape);
    require(!problem, [&] { return *problem; });
    Schedule schedule;
    schedule.name = name;
    schedule.stages = shape.stages;
    schedule.micro_batches = shape.micro_batches;
    schedule.chunks = shape.chunks;
    schedule.work.resize(static_cast<std::size_t>(shape.stages));
    for (int stage = 0; stage < shape.stages; ++stage) {
        std::vector<int>& held = schedule.parts.emplace_back();
        for (int chunk = 0; chunk < shape.chunks; ++chunk)
            held.push_back(chunk * shape.stages + stage);
    }
    return schedule;
}

Schedule empty_waves(const std::string& name, PipelineShape shape) {
    if (shape.chunks == 1) shape.chunks = 2;
    require(shape.chunks % 2 == 0,
            "{} has an even number of chunks a stage; {} were asked for", name,
            shape.chunks);
    Schedule schedule = empty_schedule(name, shape);
    for (int stage = 0; stage < shape.stages; ++stage)
        for (int chunk = 1; chunk < shape.chunks; chunk += 2)
            schedule.parts[stage][chunk] = (chunk + 1) * shape.stages - 1 - stage;
    return schedule;
}

Schedule empty_two_ways(const std::string& name, PipelineShape shape) {
    if (shape.chunks == 1) shape.chunks = 2;
    Schedule schedule = empty_schedule(name, shape);
    require(shape.stages % 2 == 0,
            "{} needs an even number of stages, because micro-batches enter at both "
            "ends; {} were asked for",
            name, shape.stages);
    for (int stage = 0; stage < shape.stages; ++stage)
        schedule.parts[stage] = {stage, shape.stages - 1 - stage};
    return schedule;
}

void end_step(Schedule& schedule) {
    for (int stage = 0; stage < schedule.stages; ++stage) {
        std::vector<Instruction>& list = schedule.work[stage];
        std::vector<int> chunks;
        chunks.reserve(static_cast<std::size_t>(schedule.chunks));
        for (int chunk = 0; chunk < schedule.chunks; ++chunk)
            chunks.push_back(chunk);
        std::sort(chunks.begin(), chunks.end(), [&](int one, int other) {
            return schedule.part(stage, one) < schedule.part(stage, other);
        });
        for (const InstructionKind kind :
             {InstructionKind::reduce_gradients, InstructionKind::optimizer_step})
            for (const int chunk : chunks)
                list.push_back({kind, -1, chunk});
    }
}

}  // namespace lockstep
