#include "src/pipeline/instruction.hpp"

#include <array>
#include <charconv>

#include <fmt/format.h>

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

/// What only a cast makes.
constexpr KindText kUnknown{"?", "unknown"};

const KindText& text_of(InstructionKind kind) {
    const auto at = static_cast<std::size_t>(kind);
    return at < kTexts.size() ? kTexts[at] : kUnknown;
}

/// Takes digits off the front of the text; false where there are none, or
/// too many.
bool take_number(std::string_view& text, int& number) {
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || text.front() == '-') return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
}

/// The same behind `mark`, where that is there.
bool take_marked(std::string_view& text, char mark, int& number) {
    if (!text.starts_with(mark)) return true;
    text.remove_prefix(1);
    return !text.empty() && take_number(text, number);
}

}  // namespace

const char* name_of(InstructionKind kind) {
    return text_of(kind).name;
}

std::string text_of(const Instruction& instruction) {
    std::string text = text_of(instruction.kind).letters;
    if (has_micro_batch(instruction.kind))
        text += std::to_string(instruction.micro_batch);
    if (instruction.chunk != 0)
        text += fmt::format(".{}", instruction.chunk);
    if (instruction.weight_version >= 0)
        text += fmt::format("@{}", instruction.weight_version);
    return text;
}

std::string words_of(const Instruction& instruction) {
    const char* name = name_of(instruction.kind);
    if (!has_micro_batch(instruction.kind))
        return fmt::format("{} ({})", name, text_of(instruction));
    return fmt::format("{} of micro-batch {} ({})", name,
                       instruction.micro_batch, text_of(instruction));
}

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
        (text.empty() || !take_number(text, instruction.micro_batch)))
        return std::nullopt;
    const bool good = take_marked(text, '.', instruction.chunk) &&
                      take_marked(text, '@', instruction.weight_version);
    if (!good || !text.empty()) return std::nullopt;
    return instruction;
}

}  // namespace lockstep
